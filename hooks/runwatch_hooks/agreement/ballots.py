"""What the ranks write down for each other about one command, and what follows from it.

    proposal    by the leader: the command
    promise     by each rank: I do not go past this turn before I know the decision
    decision    once: the turn at which all stand still for it, or that it is off
    standing    by each rank, standing there: what it can do
    trial       of a rollback: the state that each is to get ready, and then stands again
    verdict     once: done by all, now; or off

A *turn* is one passing of a boundary, counted from the attempt's beginning: unlike the number of
a step it never goes back.
"""

from collections.abc import Sequence

import msgspec

from runwatch.commands import Command, CommandState, Rollback


class Proposal(msgspec.Struct, frozen=True):
    command: Command
    valid_for_s: float
    """As it is written down. Clocks of several machines differ, and may be set meanwhile: how long
    ago that was each rank knows by its own running one, to within the patience for promises."""


class Promise(msgspec.Struct, frozen=True):
    last_turn: int
    """The turn that this rank does not pass before it knows the decision."""
    first_step: int
    """The step that its first turn would have had: equal on ranks that count alike."""
    refusal: str = ""
    """Why it will not do it at all; empty where it will."""


class Standing(msgspec.Struct, frozen=True):
    """What a rank can do, now that it stands at the agreed boundary."""

    refusal: str = ""
    states: tuple[tuple[int, ...], ...] = ()
    """For a rollback: the steps that it can go back to, those it trusts most first."""
    ready: int | None = None
    """The one of them whose state it has read, checked, and holds."""


class Decision(msgspec.Struct, frozen=True):
    turn: int | None
    """None: the command is off."""
    refusal: str = ""
    state: CommandState = CommandState.FAILED
    """What becomes of the command where it is off."""


class Trial(msgspec.Struct, frozen=True):
    """Not decided yet: each rank is to get this state ready, or to say that it cannot."""

    to_step: int


class Verdict(msgspec.Struct, frozen=True):
    """How a command ended: every rank gets the same."""

    is_go: bool
    to_step: int | None = None
    """For a rollback: the state that every rank has ready."""
    refusal: str = ""
    state: CommandState = CommandState.FAILED
    """What becomes of the command where it is off."""


def off(refusal: str, state: CommandState = CommandState.FAILED) -> Verdict:
    return Verdict(is_go=False, refusal=refusal, state=state)


def decide(promises: Sequence[Promise]) -> Decision:
    """The first turn that no rank has passed, or will pass, before it knows of it."""
    for rank, promise in enumerate(promises):
        if promise.refusal:
            refusal = f"rank {rank}: {promise.refusal}"
            return Decision(None, refusal, CommandState.REJECTED)
    first_steps = {promise.first_step for promise in promises}
    if len(first_steps) > 1:
        return Decision(None, f"the ranks count their steps from {sorted(first_steps)}")
    return Decision(max(promise.last_turn for promise in promises))


def judge(proposal: Proposal, standings: Sequence[Standing], *, waited_s: float) -> Verdict | Trial:
    """Whether it is done, by what the ranks say that stand there; one judges for all.

    A rollback is done once all have the same state ready: a checkpoint is only known to be whole
    when it has been read. A state that one rank cannot read it does not name again, so trials end.
    `waited_s` is how long ago this rank found the proposal.
    """
    for rank, standing in enumerate(standings):
        if standing.refusal:
            return off(f"rank {rank}: {standing.refusal}")
    command = proposal.command
    if not waited_s <= proposal.valid_for_s:
        return off("no step was reached in time", CommandState.EXPIRED)
    if not isinstance(command.action, Rollback):
        return Verdict(is_go=True)
    to_step = common_state([standing.states for standing in standings])
    if to_step is None:
        held = "; ".join(f"rank {rank}: {_steps(one)}" for rank, one in enumerate(standings))
        return off(f"rollback: found no good state that every rank holds ({held})"[:900])
    if all(standing.ready == to_step for standing in standings):
        return Verdict(is_go=True, to_step=to_step)
    return Trial(to_step)


def common_state(held: Sequence[Sequence[Sequence[int]]]) -> int | None:
    """The newest of the most trusted states that all ranks hold; each rank's by trust."""
    for kind in range(min((len(states) for states in held), default=0)):
        common = set(held[0][kind]).intersection(*(states[kind] for states in held))
        if common:
            return max(common)
    return None


def _steps(standing: Standing) -> str:
    steps = sorted({step for states in standing.states for step in states})
    return ", ".join(str(step) for step in steps) or "none"
