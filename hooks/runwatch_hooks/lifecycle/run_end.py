"""The status and reason with which a run ends, worked out from what its program said or raised."""

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
