"""Remembers the exception that ends the program, for use in exit handlers.

A training that stops itself with `sys.exit(1)`, say because its loss is NaN, has failed. By the
time `atexit` handlers run, Python no longer knows of a SystemExit, so it is noted on its way.
"""

import builtins
import sys
import threading
from multiprocessing.process import BaseProcess, parent_process
from types import CodeType
from typing import Any, Final

from runwatch_hooks.lifecycle.run_end import RememberedExit
from runwatch_hooks.settings.environment import is_disabled
from runwatch_hooks.wraps import Arguments, Keywords, Listeners, Subscriptions


class CalledExits:
    """Notes exits by wrapping `sys.exit`, `exit` and `quit`, on Python 3.11.

    `raise SystemExit(1)` is not noticed: Python 3.11 has no means to observe it.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The last exit called for. It may have been caught: another training step shows that."""
        self._subscriptions = Subscriptions()

    def install(self) -> None:
        """Wrap these functions for the life of the process. This is done at import, not when the
        first run is opened: `sys.exit(main())` looks the function up before it calls `main`."""
        self._subscriptions.listen(sys, "exit", Listeners(before=self._note_exit))
        if hasattr(builtins, "exit"):  # of `site`; `quit` is another of its kind
            self._subscriptions.listen(
                type(builtins.exit), "__call__", Listeners(before=self._note_quit)
            )

    def listen(self, listener: object) -> None:
        """A run has been opened. Nothing to do: exits are noted since import."""

    def leave(self, listener: object) -> None:
        """A run has ended. Nothing to undo: exits are still noted, for the next run."""

    def _note_exit(self, args: Arguments, kwargs: Keywords) -> None:
        if _is_in_main_thread():
            error = SystemExit(*args)
            error.__context__ = sys.exception()
            self.error = RememberedExit(error)

    def _note_quit(self, args: Arguments, kwargs: Keywords) -> None:
        self._note_exit((*args[1:], *kwargs.values()), {})


if sys.version_info >= (3, 12):
    _TOOLS: Final = (4, 3)
    """Tool ids of `sys.monitoring` that Python reserves for no kind of tool, unlike 0 (debuggers).
    """
    _OF_CHILDREN: Final[CodeType | None] = getattr(
        getattr(BaseProcess, "_bootstrap", None), "__code__", None
    )
    """Runs the child process of multiprocessing, and turns its error into an exit code."""

    class LeavingErrors:
        """Notes errors as they leave the program's outermost function, however they were raised.

        `sys.monitoring` calls back only for functions that are left by an exception, so a step
        without one costs nothing. If other tools have taken both ids, nothing is noted.
        """

        def __init__(self) -> None:
            self.error: BaseException | None = None
            self._tool: int | None = None
            self._listeners: set[object] = set()
            self._changing = threading.RLock()  # a signal handler may end a run within

        def listen(self, listener: object) -> None:
            """A run has been opened."""
            with self._changing:
                self._listeners.add(listener)
                if self._tool is None:
                    self._begin()

        def leave(self, listener: object) -> None:
            """A run has ended. May be repeated."""
            with self._changing:
                self._listeners.discard(listener)
                if self._tool is not None and not self._listeners:
                    sys.monitoring.set_events(self._tool, 0)
                    sys.monitoring.free_tool_id(self._tool)
                    self._tool = None

        def _begin(self) -> None:
            self._tool = next((one for one in _TOOLS if sys.monitoring.get_tool(one) is None), None)
            if self._tool is not None:
                unwind = sys.monitoring.events.PY_UNWIND
                sys.monitoring.use_tool_id(self._tool, "runwatch")
                sys.monitoring.register_callback(self._tool, unwind, self._look)
                sys.monitoring.set_events(self._tool, unwind)

        def _look(self, code: CodeType, offset: int, error: BaseException) -> Any:
            caller = sys._getframe(1).f_back  # pyright: ignore[reportPrivateUsage]
            called_by = None if caller is None else caller.f_code
            outermost = None if parent_process() is None else _OF_CHILDREN
            if called_by is outermost and _is_in_main_thread():
                # Other errors can be kept as they are: Python itself holds their frames until its
                # exit handlers have run.
                self.error = RememberedExit(error) if type(error) is SystemExit else error

    EXIT_ERRORS: Final = LeavingErrors()
    """One per process, shared by all open runs."""
else:
    EXIT_ERRORS: Final = CalledExits()
    """One per process, shared by all open runs."""
    if not is_disabled():
        EXIT_ERRORS.install()


def _is_in_main_thread() -> bool:
    """An exit or error in another thread ends only that thread."""
    return threading.current_thread() is threading.main_thread()
