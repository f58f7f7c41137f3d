"""With which code a program leaves: noted as it says so, since Python has forgotten it by the time
of its exit handlers, and "the loss is nan, stopping" with `sys.exit(1)` is no end in order."""

import atexit
import os
import sys
import threading
from collections.abc import Callable

from runwatch_hooks.endings import text_of
from runwatch_hooks.wraps import Arguments, Ears, Holds, Keywords


class ProgramExit:
    """One watch's ear at `sys.exit`. An exit that was caught is forgotten as training goes on."""

    def __init__(self, tell_failed: Callable[[str], None]) -> None:
        """`tell_failed` hears the reason at the end of a process that was left with an error; it
        must not raise."""
        self._tell_failed = tell_failed
        self._holds = Holds()
        self._pid = 0
        self._code: object = None

    def install(self) -> None:
        """After the line was opened: what is registered later is heard earlier at the exit."""
        self._pid = os.getpid()
        self._holds.hold(sys, "exit", Ears(before=self._note))
        atexit.register(self._at_exit)

    def remove(self) -> None:
        self._holds.release()
        atexit.unregister(self._at_exit)

    def go_on(self) -> None:
        """Another step was trained: the process has not been left."""
        self._code = None

    def _note(self, args: Arguments, kwargs: Keywords) -> None:
        if threading.current_thread() is threading.main_thread():  # another one ends itself alone
            self._code = args[0] if args else None

    def _at_exit(self) -> None:
        if os.getpid() == self._pid and self._code not in (None, 0):
            self._tell_failed(f"SystemExit: {text_of(self._code)}")
