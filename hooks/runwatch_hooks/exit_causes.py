"""How a program ended, and the status and reason with which its run therefore ends."""

import atexit
import builtins
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from multiprocessing.process import BaseProcess, parent_process
from multiprocessing.util import Finalize
from types import CodeType, TracebackType
from typing import Any, Final, Literal, Self, cast, get_args

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.settings.environment import is_disabled
from runwatch_hooks.wraps import Arguments, Keywords, Listeners, Subscriptions

log = OwnLog(__name__)

Status = Literal["finished", "failed", "stopped"]
STATUSES: Final[tuple[str, ...]] = get_args(Status)

_MAX_REASON: Final = 500
"""Characters of an exception's text that are kept."""


_MAX_CAUSES: Final = 10
_LEFT: Final = "the generator that trained was left"
"""The caller stopped iterating, or was itself ended by an error: both raise GeneratorExit."""


class Fatal(StrEnum):
    """Causes that lie outside the training code. Each value is the kind of the event reported."""

    OUT_OF_MEMORY = "out_of_memory"
    COLLECTIVE_ERROR = "collective_error"
    """From torch.distributed: a lost rank, a network failure, a timeout."""


_BY_CLASS: Final = {
    "OutOfMemoryError": Fatal.OUT_OF_MEMORY,
    "MemoryError": Fatal.OUT_OF_MEMORY,
    "DistError": Fatal.COLLECTIVE_ERROR,
}
_BY_TEXT: Final = (
    ("out of memory", Fatal.OUT_OF_MEMORY),
    ("can't allocate memory", Fatal.OUT_OF_MEMORY),
    ("NCCL error", Fatal.COLLECTIVE_ERROR),
    ("Connection closed by peer", Fatal.COLLECTIVE_ERROR),  # gloo
)
"""Looked for in the text of a RuntimeError: torch has no class of its own for these."""


def fatal_of(error: BaseException) -> Fatal | None:
    """The cause of an error if it is one of `Fatal`, looked for along `__cause__` as well.

    Classes are compared by name, so that programs without torch need not import it."""
    one: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if one is None or isinstance(one, RememberedExit):
            return None if one is None else one.fatal
        for kind in type(one).__mro__:
            if kind.__name__ in _BY_CLASS:
                return _BY_CLASS[kind.__name__]
        if isinstance(one, RuntimeError):
            text = reason_of(one)
            for words, fatal in _BY_TEXT:
                if words in text:
                    return fatal
        first = _first_of(one)
        one = first if first is not None else one.__cause__ or _handled_by(one)
    return None


class RememberedExit(SystemExit):
    """A SystemExit that can be kept until the program ends, with the text of the error it followed.

    The original would keep alive the frames of its traceback and all their variables: a model
    whose trial failed would stay in memory although the exit was caught."""

    def __init__(self, error: SystemExit) -> None:
        code = error.code
        super().__init__(code if isinstance(code, int | None) else text_of(code))
        handled = error.__context__
        self.fatal = None if handled is None else fatal_of(handled)
        self.after = "" if handled is None else reason_of(handled)


def ending_of(status: object, reason: object) -> tuple[Status, str]:
    """The status and reason that a program gave to `finish`, whatever their types.

    An unknown status is recorded as failed: the service would refuse it, and believe that the run
    is still going on.
    """
    text = reason_of(reason) if isinstance(reason, BaseException) else text_of(reason)
    text = text[:_MAX_REASON]
    if isinstance(status, str) and status in STATUSES:
        return cast(Status, status), text
    found = f"status: found {text_of(status)!r}, wanted one of {', '.join(STATUSES)}"
    log.warning("finish: %s; the run is recorded as failed", found)
    return "failed", (f"{found}. {text}" if text else found)[:_MAX_REASON]


def ending_by(error: BaseException | None) -> tuple[Status, str]:
    """The status and reason of a run whose block or program ended with `error`; None: normally."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished", ""
    if isinstance(error, GeneratorExit):
        return "finished", _LEFT
    if _is_interrupt(error):
        return "stopped", reason_of(error).removesuffix(": ")
    after = _words_before(error)
    reason = f"{reason_of(error)}, after {after}" if after else reason_of(error)
    return "failed", reason[:_MAX_REASON]


def _is_interrupt(error: BaseException) -> bool:
    """Whether somebody ended it: by Ctrl-C, which `asyncio.run` turns into a cancellation of its
    task, or by cancelling that task. asyncio is not imported here, because that is slow: if it is
    not loaded yet, nothing can have been cancelled."""
    asyncio = sys.modules.get("asyncio")
    cancelled = () if asyncio is None else (asyncio.CancelledError,)
    return isinstance(error, (KeyboardInterrupt, *cancelled))


def _handled_by(error: BaseException) -> BaseException | None:
    """The error being handled when the program called for an exit, which is usually its cause."""
    return error.__context__ if isinstance(error, SystemExit) else None


def _words_before(error: BaseException) -> str:
    if isinstance(error, RememberedExit):
        return error.after
    handled = _handled_by(error)
    return "" if handled is None else reason_of(handled)


def text_of(value: object) -> str:
    """`str(value)`, or the name of its type if its `__str__` fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  a user-defined `__str__`
        return type(value).__name__


def reason_of(error: BaseException) -> str:
    """An exception's type and text, at most 500 characters; of a group, also its first member's."""
    texts: list[str] = []
    one: BaseException | None = error
    while one is not None and len(texts) < _MAX_CAUSES:
        try:
            texts.append(f"{_name_of(one)}: {one}")
        except Exception:  # noqa: BLE001  a user-defined `__str__`
            texts.append(_name_of(one))
        one = _first_of(one)
    return ": ".join(texts)[:_MAX_REASON]


def _name_of(error: BaseException) -> str:
    return (SystemExit if isinstance(error, RememberedExit) else type(error)).__name__


def _first_of(error: BaseException) -> BaseException | None:
    """The first of an exception group, as asyncio's task groups raise; None if it is no group."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    return cast("tuple[BaseException, ...]", error.exceptions)[0]


class EndsWithItsBlock(ABC):
    """A run that ends with its `with` block: finished; stopped, by Ctrl-C or because its task was
    cancelled; or failed, with the reason."""

    @abstractmethod
    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        """End the run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_by(error)

    def _end_by(self, error: BaseException | None) -> None:
        """End the run as its block, thread or program ended: with this error, or normally."""
        status, reason = ending_by(error)
        if error is not None and status == "failed":
            self._note_fatal(error)
        self.finish(status, reason=reason)

    def _note_fatal(self, error: BaseException) -> None:  # noqa: B027  optional for subclasses
        """Called with the exception that ends the training, before `finish`. Must not raise."""


class CalledExits:
    """Notes exits by wrapping `sys.exit`, `exit` and `quit`, on Python 3.11.

    `raise SystemExit(1)` is not noticed: Python 3.11 has no means to observe it.

    A training that stops itself with `sys.exit(1)`, say because its loss is NaN, has failed. By the
    time `atexit` handlers run, Python no longer knows of a SystemExit, so it is noted on its way.
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
