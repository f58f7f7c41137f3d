"""How long a run's phases have lasted so far: an evaluation is overdue by the past ones.

From the events that trainers send as a phase begins and ends. They are stored, so that what was
learned outlives a restart of the service, and every replica knows the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import Phase, RunId
from runwatch_server.alerts.event_queries import list_phase_events
from runwatch_server.alerts.records import RunEvent
from runwatch_server.runs.heard_rank import RankFacts

_Stay = tuple[int, int | None, Phase]
"""Attempt, last step, phase: the same as long as a rank stays where it is."""


@dataclass(slots=True)
class PhaseHistory:
    """What is known of the runs that this replica judges; asked for once a stay in a phase."""

    _known: dict[RunId, tuple[_Stay, float | None]] = field(
        default_factory=dict[RunId, tuple[_Stay, float | None]]
    )

    def known(self, run_id: RunId, facts: RankFacts) -> bool:
        """Whether nothing has to be asked."""
        found = self._known.get(run_id)
        return facts.phase is Phase.TRAIN or (found is not None and found[0] == _stay(facts))

    async def learn(self, connection: AsyncConnection, run_id: RunId, facts: RankFacts) -> None:
        """Ask how long the phase lasted that a run is in."""
        events = await list_phase_events(connection, run_id)
        self._known[run_id] = _stay(facts), longest_s(events, facts.phase)

    def longest_s(self, run_id: RunId, facts: RankFacts) -> float | None:
        """The longest stay in the phase that the rank is in; None where it never left it."""
        if facts.phase is Phase.TRAIN or run_id not in self._known:
            return None
        stay, longest = self._known[run_id]
        return longest if stay == _stay(facts) else None

    def drop(self, run_id: RunId) -> None:
        self._known.pop(run_id, None)


def longest_s(events: Sequence[RunEvent], phase: Phase) -> float | None:
    """The longest that a phase lasted, of events in their order; None where it never ended.

    By the trainer's clock, which may be set: what ends before it began lasted no time. Of a
    life that broke off in a phase nothing is learned: the next begin counts.
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
