"""Keeps the hook's threads out of torch's C++ code while the interpreter shuts down."""

import atexit
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


class ShutError(Exception):
    """The interpreter is shutting down, and no thread may enter any more."""


class ExitGate:
    """Calls inside it end before the interpreter shuts down, or never begin.

    A daemon thread that returns from C++ and asks a finalizing interpreter for the GIL is ended by
    unwinding its stack (CPython up to 3.13, `take_gil` in ceval_gil.h). C++ responds with
    std::terminate, so a training that ended well would exit with SIGABRT because of the hook.
    """

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` limits how long the exit waits for threads inside."""
        self._timeout_s = timeout_s
        self._open()
        atexit.register(self.shut)
        os.register_at_fork(after_in_child=self._open)  # threads inside exist only in the parent

    @contextmanager
    def inside(self) -> Generator[None]:
        """Enter for the length of a block. Raises ShutError."""
        with self._changed:
            if self._is_shut:
                raise ShutError("the interpreter is shutting down")
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Let no thread in any more, and wait until all are out, at most `timeout_s`."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: self._num_inside == 0, self._timeout_s)

    def _open(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_shut = False
