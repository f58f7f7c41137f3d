"""How a watched run ends, and that it does so with the block that holds it."""

import sys
from abc import ABC, abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import Final, Literal, Self, cast, get_args

from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

Status = Literal["finished", "failed", "stopped"]
STATUSES: Final[tuple[str, ...]] = get_args(Status)

_MAX_REASON: Final = 500
"""Characters of an exception's text that are told."""


_MAX_CAUSES: Final = 10
_LEFT: Final = "the generator that trained was left"
"""By its reader, which had enough, or was left itself by an error: Python says the same of both."""


class Fatal(StrEnum):
    """What ends a training from without, by the kind of the event that tells it."""

    OUT_OF_MEMORY = "out_of_memory"
    COLLECTIVE_ERROR = "collective_error"
    """Of torch.distributed: a rank that is gone, a network, a time-out."""


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
"""Of a RuntimeError, which is all that torch makes of some."""


def fatal_of(error: BaseException) -> Fatal | None:
    """By names, so that programs without torch need none. An error that was caught and raised as
    another is known by its cause."""
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
    """A SystemExit as it is kept until the program's end: with the words of what was on its way, no
    more. An error holds the frames that it came through, and all that lived in them: a model whose
    trial failed would stay in memory though the exit was caught."""

    def __init__(self, error: SystemExit) -> None:
        code = error.code
        super().__init__(code if isinstance(code, int | None) else text_of(code))
        handled = error.__context__
        self.fatal = None if handled is None else fatal_of(handled)
        self.after = "" if handled is None else reason_of(handled)


def ending_of(status: object, reason: object) -> tuple[Status, str]:
    """How a run ended, and why, of what its program says of it, which may be anything.

    A word that is none of ours is told as a failure, which it may be: the service would refuse it,
    and believe that the run goes on.
    """
    text = reason_of(reason) if isinstance(reason, BaseException) else text_of(reason)
    text = text[:_MAX_REASON]
    if isinstance(status, str) and status in STATUSES:
        return cast(Status, status), text
    found = f"status: found {text_of(status)!r}, wanted one of {', '.join(STATUSES)}"
    log.warning("finish: %s; it is told as failed", found)
    return "failed", (f"{found}. {text}" if text else found)[:_MAX_REASON]


def ending_by(error: BaseException | None) -> tuple[Status, str]:
    """How a run ended, and why, that ended with its block or its program."""
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
    """Somebody ended it: by Ctrl-C, of which `asyncio.run` makes a cancellation of its task, or by
    cancelling that task. It is asked for where it is in use: to import it takes its time."""
    asyncio = sys.modules.get("asyncio")
    cancelled = () if asyncio is None else (asyncio.CancelledError,)
    return isinstance(error, (KeyboardInterrupt, *cancelled))


def _handled_by(error: BaseException) -> BaseException | None:
    """What was on its way when the program was told to exit: the cause, as a rule."""
    return error.__context__ if isinstance(error, SystemExit) else None


def _words_before(error: BaseException) -> str:
    if isinstance(error, RememberedExit):
        return error.after
    handled = _handled_by(error)
    return "" if handled is None else reason_of(handled)


def text_of(value: object) -> str:
    """Its text; where its own code fails at that, the name of its type."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  somebody's own `__str__`
        return type(value).__name__


def reason_of(error: BaseException) -> str:
    """What an exception says of itself, in a line or two; a group also what its first says."""
    texts: list[str] = []
    one: BaseException | None = error
    while one is not None and len(texts) < _MAX_CAUSES:
        try:
            texts.append(f"{_name_of(one)}: {one}")
        except Exception:  # noqa: BLE001  somebody's own `__str__`, at the worst of times
            texts.append(_name_of(one))
        one = _first_of(one)
    return ": ".join(texts)[:_MAX_REASON]


def _name_of(error: BaseException) -> str:
    return (SystemExit if isinstance(error, RememberedExit) else type(error)).__name__


def _first_of(error: BaseException) -> BaseException | None:
    """Of several that were raised together, as by tasks of asyncio."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    return cast("tuple[BaseException, ...]", error.exceptions)[0]


class EndsWithItsBlock(ABC):
    """A run that a `with` finishes: as finished, stopped by Ctrl-C or by the cancelling of its
    task, or failed with the reason."""

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
        """End the run as its block, its thread or its program ended: by this, or in order."""
        status, reason = ending_by(error)
        if error is not None and status == "failed":
            self._note_fatal(error)
        self.finish(status, reason=reason)

    def _note_fatal(self, error: BaseException) -> None:  # noqa: B027  not every run has an ear
        """An exception is on its way out of the training; it is not held up. Must not raise."""
