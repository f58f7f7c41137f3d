"""The error by which a program is left: "the loss is nan, stopping" with `sys.exit(1)` is no end in
order, and of a SystemExit Python has forgotten all by the time of its exit handlers."""

import builtins
import sys
import threading
from multiprocessing.process import BaseProcess, parent_process
from types import CodeType
from typing import Any, Final

from runwatch_hooks.lifecycle.run_end import RememberedExit
from runwatch_hooks.settings.environment import is_disabled
from runwatch_hooks.wrapping.wraps import Arguments, Ears, Holds, Keywords


class CalledExits:
    """Heard where they are called for: `sys.exit`, `exit` and `quit`.

    Of `raise SystemExit(1)` Python 3.11 tells nobody.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """What was heard last. It may have been caught: who trains another step knows."""
        self._holds = Holds()

    def hear(self) -> None:
        """Stand before these functions, for as long as the process lives. Not from the first run's
        beginning on: `sys.exit(main())` has taken the function before `main` opens one."""
        self._holds.hold(sys, "exit", Ears(before=self._note_exit))
        if hasattr(builtins, "exit"):  # of `site`; `quit` is another of its kind
            self._holds.hold(type(builtins.exit), "__call__", Ears(before=self._note_quit))

    def listen(self, listener: object) -> None:
        """A run has been opened: all is heard by then, and nothing is to be done."""

    def leave(self, listener: object) -> None:
        """A run has ended: what is heard meanwhile is for the next one, and nothing is undone."""

    def _note_exit(self, args: Arguments, kwargs: Keywords) -> None:
        if _is_in_main_thread():
            error = SystemExit(*args)
            error.__context__ = sys.exception()
            self.error = RememberedExit(error)

    def _note_quit(self, args: Arguments, kwargs: Keywords) -> None:
        self._note_exit((*args[1:], *kwargs.values()), {})


if sys.version_info >= (3, 12):
    _TOOLS: Final = (4, 3)
    """Ids that Python promises to no kind of tool, as it does 0 to a debugger."""
    _OF_CHILDREN: Final[CodeType | None] = getattr(
        getattr(BaseProcess, "_bootstrap", None), "__code__", None
    )
    """What runs a child of multiprocessing, and turns its error into an exit code."""

    class LeavingErrors:
        """Seen as they leave the program's outermost function, however they were raised.

        Python tells of functions that are left by an exception, and of nothing else: a step that
        raises none costs nothing. Where other tools have taken the ids, nothing is seen.
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
                # Of other errors Python itself holds the frames, too, until its exit handlers ran.
                self.error = RememberedExit(error) if type(error) is SystemExit else error

    DEPARTURE: Final = LeavingErrors()
    """Of the process, for all runs that it has open."""
else:
    DEPARTURE: Final = CalledExits()
    """Of the process, for all runs that it has open."""
    if not is_disabled():
        DEPARTURE.hear()


def _is_in_main_thread() -> bool:
    """Another thread ends itself alone."""
    return threading.current_thread() is threading.main_thread()
