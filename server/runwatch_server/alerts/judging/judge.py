"""What judges a stream, wherever it computes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runwatch.errors import RunwatchError
from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.seams import CommittedFrame


class JudgeLostError(RunwatchError):
    """The process that held an evaluator has ended, and what it remembered with it."""


class JudgingFailedError(RunwatchError):
    """An evaluator in another process failed: the message is its traceback."""


class Judge(Protocol):
    """The evaluator of one stream; asked one thing at a time.

    Any question may raise, JudgeLostError among others; afterwards the judge is worth nothing, as
    it may have observed a part of what it was given.
    """

    @property
    def rule_set(self) -> RuleSet: ...

    async def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        """What the next frames of the stream change."""
        ...

    async def known_to_next(self) -> dict[str, float]:
        """What the next attempt is to know of this one."""
        ...

    async def state(self) -> bytes:
        """All that it remembers."""
        ...

    async def with_rules(self, rule_set: RuleSet) -> "Judge":
        """The same with other rules: what did not change goes on, what did starts cold."""
        ...


class Judging(Protocol):
    """Makes judges, and gives them their place."""

    @property
    def busy_s(self) -> float:
        """For how long the longest of the questions that are being answered has been so."""
        ...

    async def open(
        self,
        run_id: RunId,
        rank: int,
        rule_set: RuleSet,
        *,
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> Judge:
        """A judge that goes on from a saved state, or without one begins with what is known."""
        ...

    async def close(self) -> None:
        """Every judge is worth nothing from here on."""
        ...
