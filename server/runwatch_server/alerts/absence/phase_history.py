"""How long a run's phases have lasted so far, by which it is judged whether an evaluation is
overdue.

Learned from the events that trainers send when a phase begins and ends. They are stored, so the
knowledge outlives a restart of the service and is the same on every replica.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import Phase, RunId
from runwatch_server.alerts.event_queries import list_phase_events
from runwatch_server.alerts.records import RunEvent
from runwatch_server.runs.rank_activity import RankFacts

_Stay = tuple[int, int | None, Phase]
"""Attempt, last step and phase; they stay the same while a rank stays in one phase."""


@dataclass(slots=True)
class PhaseHistory:
    """Phase durations of the runs that this replica judges; queried once per stay in a phase."""

    _known: dict[RunId, tuple[_Stay, float | None]] = field(
        default_factory=dict[RunId, tuple[_Stay, float | None]]
    )

    def known(self, run_id: RunId, facts: RankFacts) -> bool:
        """Whether the durations are known and need no query."""
        found = self._known.get(run_id)
        return facts.phase is Phase.TRAIN or (found is not None and found[0] == _stay(facts))

    async def learn(self, connection: AsyncConnection, run_id: RunId, facts: RankFacts) -> None:
        """Query how long the run's current phase has lasted before."""
        events = await list_phase_events(connection, run_id)
        self._known[run_id] = _stay(facts), longest_s(events, facts.phase)

    def longest_s(self, run_id: RunId, facts: RankFacts) -> float | None:
        """The longest stay, in seconds, in the rank's current phase; None if it never left that
        phase."""
        if facts.phase is Phase.TRAIN or run_id not in self._known:
            return None
        stay, longest = self._known[run_id]
        return longest if stay == _stay(facts) else None

    def drop(self, run_id: RunId) -> None:
        self._known.pop(run_id, None)


def longest_s(events: Sequence[RunEvent], phase: Phase) -> float | None:
    """The longest duration of a phase in events given in order; None if the phase never ended.

    Measured by the trainer's clock, which may be set: a phase that ends before it began has lasted
    0 s. Nothing is learned from an attempt that broke off inside a phase: the next beginning
    counts.
    """
    began: float | None = None
    longest: float | None = None
    for event in events:
        if Phase.named(str(event.detail.get("phase"))) is not phase:
            continue
        if event.detail.get("edge") == "begin":
            began = event.at
        elif began is not None:
            longest = max(longest or 0.0, event.at - began)
            began = None
    return longest


def _stay(facts: RankFacts) -> _Stay:
    return facts.attempt, facts.last_step, facts.phase
