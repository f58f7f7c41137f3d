"""Notices that a program ends while a run is open, and how: an error, a SystemExit, or its end."""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize

from runwatch_hooks.lifecycle.exit_errors import EXIT_ERRORS
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.wraps import Arguments, Keywords, Listeners, Subscriptions

log = OwnLog(__name__)


class ProgramExit:
    """Exit handlers of one run, from `install` to `remove`."""

    def __init__(
        self,
        on_exit: Callable[[BaseException | None], None],
        on_death: Callable[[BaseException], None],
    ) -> None:
        """`on_exit` is called when the process ends, with the error that ends it; `on_death` when
        the thread that trained has died of an error while the process goes on. Neither may raise.
        """
        self._on_exit = on_exit
        self._on_death = on_death
        self._subscriptions = Subscriptions()
        self._finalizer: Finalize | None = None
        self._pid = 0
        self._thread = 0
        self._old_exit_error: BaseException | None = None
        self._old_error: BaseException | None = None

    def install(self) -> None:
        self._pid = os.getpid()
        self.go_on()
        EXIT_ERRORS.listen(self)
        self._subscriptions.listen(threading, "excepthook", Listeners(after=self._note_death))
        atexit.register(self._at_exit)
        if parent_process() is not None:
            # A forked child ends by os._exit, which does not run atexit handlers.
            self._finalizer = Finalize(None, self._at_exit, exitpriority=0)

    def remove(self) -> None:
        self._subscriptions.release()
        EXIT_ERRORS.leave(self)
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._finalizer = self._old_exit_error = self._old_error = None

    def go_on(self) -> None:
        """Another step was trained, by this thread: earlier exits and errors were caught."""
        self._thread = threading.get_ident()
        self._old_exit_error = EXIT_ERRORS.error
        self._old_error = _last_error()

    def error(self) -> BaseException | None:
        """The error that nobody has caught since the last step; None if there is none."""
        last = _last_error()
        if last is not None and last is not self._old_error:
            return last
        error = EXIT_ERRORS.error
        return None if error is self._old_exit_error else error

    def _note_death(self, args: Arguments, kwargs: Keywords) -> None:
        error: BaseException | None = args[0].exc_value
        if error is not None and self._is_ours() and threading.get_ident() == self._thread:
            log.warning("the training thread has died, and the run ends with it")
            self._on_death(error)

    def _at_exit(self) -> None:
        if self._is_ours():
            # multiprocessing's finalizers run while the exception is still being handled.
            error = sys.exception() or self.error()
            self.remove()
            self._on_exit(error)

    def _is_ours(self) -> bool:
        """False in a child process that was forked after the run was opened."""
        return os.getpid() == self._pid


def _last_error() -> BaseException | None:
    """The error that ended the main thread or, in a notebook, a cell."""
    last: BaseException | None = getattr(sys, "last_value", None)
    return last
