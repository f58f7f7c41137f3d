"""Decides the state of a run from the facts of its liveness. No I/O."""

from collections.abc import Sequence
from typing import Final

from runwatch.vocabulary import Phase, RunState
from runwatch_server.runs.rank_activity import RankFacts

_BY_PHASE: Final = {
    Phase.EVAL: RunState.EVALUATING,
    Phase.CHECKPOINT: RunState.CHECKPOINTING,
    Phase.COMPILE: RunState.STARTING,
    Phase.INIT: RunState.STARTING,
    Phase.IDLE: RunState.IDLE,
}


def judge_state(
    facts: Sequence[RankFacts], *, stall_s: float, lost_s: float, known: RunState
) -> RunState:
    """The state of a run that has not ended; `known` stays if nothing contradicts it."""
    if not facts or known.is_ended:
        return known
    if not min(rank.contact_age_s for rank in facts) <= lost_s:
        return RunState.LOST
    first = facts[0]
    if first.last_step is None and first.phase is Phase.INIT:  # nothing heard since our own start
        return known
    if first.phase in _BY_PHASE:
        return _BY_PHASE[first.phase]
    if not first.step_age_s <= _patience_s(first, stall_s):
        return RunState.STALLED
    return RunState.TRAINING


def _patience_s(rank: RankFacts, stall_s: float) -> float:
    """As in the rule NoStep: steps and pauses as long as the run has had before are no stall."""
    return max(stall_s, 20 * (rank.step_time_s or 0.0), 2 * (rank.longest_pause_s or 0.0))
