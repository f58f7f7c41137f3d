"""Keeps threads of ours out of torch's C++ while the interpreter goes down."""

import atexit
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


class ShutError(Exception):
    """The interpreter goes down: nobody may enter any more."""


class ExitGate:
    """What goes through it is over before the interpreter goes down, or never begins.

    A daemon thread that returns from C++ and asks a finalizing interpreter for the GIL is ended
    by unwinding its stack (CPython up to 3.13, `take_gil` in ceval_gil.h). C++ answers that with
    std::terminate, and a training that had ended well would exit by SIGABRT, through us.
    """

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` bounds how long the exit waits for those that are inside."""
        self._timeout_s = timeout_s
        self._open()
        atexit.register(self.shut)
        os.register_at_fork(after_in_child=self._open)  # the threads inside stay with the parent

    @contextmanager
    def inside(self) -> Generator[None]:
        """Raises ShutError."""
        with self._changed:
            if self._is_shut:
                raise ShutError("the interpreter goes down")
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more, and wait until all are out, or time is up."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: self._num_inside == 0, self._timeout_s)

    def _open(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_shut = False
