"""How a watched run ends, and that it does so with the block that holds it."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Literal, Self

Status = Literal["finished", "failed", "stopped"]

_MAX_REASON: Final = 500
"""Characters of an exception's text that are told."""


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
            self.finish("failed", reason=f"{type(error).__name__}: {error}"[:_MAX_REASON])
