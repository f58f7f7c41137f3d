"""The interface of what judges a stream, wherever it computes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runwatch.errors import RunwatchError
from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.committed_frames import CommittedFrame


class JudgeLostError(RunwatchError):
    """The process that held an evaluator has ended, and the evaluator's state is lost."""


class JudgingFailedError(RunwatchError):
    """An evaluator in another process failed; the message is its traceback."""


class Judge(Protocol):
    """The evaluator of one stream; it answers one question at a time.

    Any question may raise, JudgeLostError among others. Afterwards the judge must not be used any
    more, as it may have observed a part of what it was given.
    """

    @property
    def rule_set(self) -> RuleSet: ...

    @property
    def num_bytes(self) -> int:
        """About how much memory its evaluator took after the last question."""
        ...

    async def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        """The transitions that the stream's next frames bring."""
        ...

    async def known_to_next(self) -> dict[str, float]:
        """What the next attempt has to know about this one."""
        ...

    async def state(self) -> bytes:
        """The complete state, serialized."""
        ...

    async def with_rules(self, rule_set: RuleSet) -> "Judge":
        """The same judge with other rules: unchanged rules keep their state, changed ones start
        cold."""
        ...


class Judging(Protocol):
    """Makes judges and decides where they compute. Projects share the time fairly."""

    @property
    def busy_s(self) -> float:
        """For how many seconds the longest question under way has been running."""
        ...

    async def open(
        self,
        run_id: RunId,
        rank: int,
        rule_set: RuleSet,
        *,
        project: str = "",
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> Judge:
        """A judge that continues from a saved state, or that starts with what is known if there is
        none."""
        ...

    async def close(self) -> None:
        """Stop; no judge may be used any more."""
        ...
