"""How a watched run ends, and that it does so with the block that holds it."""

from abc import ABC, abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import Final, Literal, Self

Status = Literal["finished", "failed", "stopped"]

_MAX_REASON: Final = 500
"""Characters of an exception's text that are told."""


_MAX_CAUSES: Final = 10


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
        if one is None:
            break
        for kind in type(one).__mro__:
            if kind.__name__ in _BY_CLASS:
                return _BY_CLASS[kind.__name__]
        if isinstance(one, RuntimeError):
            text = reason_of(one)
            for words, fatal in _BY_TEXT:
                if words in text:
                    return fatal
        one = one.__cause__
    return None


def reason_of(error: BaseException) -> str:
    """What an exception says of itself, in a line or two."""
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_REASON]
    except Exception:  # noqa: BLE001  somebody's own `__str__`, at the worst of times
        return type(error).__name__


class EndsWithItsBlock(ABC):
    """A run that a `with` finishes: as finished, stopped by Ctrl-C, or failed with the reason."""

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
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.finish()
        elif isinstance(error, KeyboardInterrupt):
            self.finish("stopped", reason="KeyboardInterrupt")
        else:
            self._note_fatal(error)
            self.finish("failed", reason=reason_of(error))

    def _note_fatal(self, error: BaseException) -> None:  # noqa: B027  not every run has an ear
        """An exception is on its way out of the training; it is not held up. Must not raise."""
