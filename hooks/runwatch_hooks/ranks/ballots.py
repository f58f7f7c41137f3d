"""The messages of the protocol for one command, and the rules by which they are judged.

    proposal    by the leader: the command
    promise     by each rank: not to pass this turn before it knows the decision
    decision    once: the turn at which all wait for the command, or that it is cancelled
    standing    by each rank at that turn: what it can do
    trial       for a rollback: the state that each rank must get ready before it stands again
    verdict     once: all carry it out now, or it is cancelled

A *turn* is one passing of a boundary, counted from the beginning of the attempt. Unlike a step
number it never goes back.
"""

from collections.abc import Sequence
from itertools import count, product, takewhile
from typing import Final, TypeVar

import msgspec

from runwatch.commands import Command, CommandState, Rollback
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.uplink.service import sendable_document


class Proposal(msgspec.Struct, frozen=True):
    command: Command
    valid_for_s: float
    """Seconds until it expires, when it was written. A duration, because clocks of machines differ
    and may be set: each rank measures by its own monotonic clock how long ago it was written, to
    within the timeout for promises."""


class Promise(msgspec.Struct, frozen=True):
    last_turn: int
    """The turn that this rank will not pass before it knows the decision."""
    first_step: int
    """The step number of its first turn, equal on all ranks that count their steps alike."""
    refusal: str = ""
    """Why it refuses the command; empty if it does not."""


class Standing(msgspec.Struct, frozen=True):
    """What a rank can do at the agreed turn."""

    refusal: str = ""
    states: tuple[tuple[int, ...], ...] = ()
    """For a rollback: the steps that it can go back to, in groups, the most trusted first."""
    ready: int | None = None
    """The step whose state it has read and checked, and holds."""


class Decision(msgspec.Struct, frozen=True):
    turn: int | None
    """The agreed turn; None: the command is cancelled."""
    refusal: str = ""
    state: CommandState = CommandState.FAILED
    """The command's final state if it is cancelled."""


class Trial(msgspec.Struct, frozen=True):
    """Not decided yet: each rank must get this state ready, or say that it cannot."""

    to_step: int


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a command, the same for every rank."""

    is_go: bool
    to_step: int | None = None
    """For a rollback: the step whose state every rank has ready."""
    refusal: str = ""
    state: CommandState = CommandState.FAILED
    """The command's final state if it is cancelled."""


def off(refusal: str, state: CommandState = CommandState.FAILED) -> Verdict:
    return Verdict(is_go=False, refusal=refusal, state=state)


def decide(promises: Sequence[Promise]) -> Decision:
    """The first turn that no rank has passed, or will pass before it knows the decision."""
    for rank, promise in enumerate(promises):
        if promise.refusal:
            refusal = f"rank {rank}: {promise.refusal}"
            return Decision(None, refusal, CommandState.REJECTED)
    first_steps = {promise.first_step for promise in promises}
    if len(first_steps) > 1:
        return Decision(None, f"the ranks count their steps from {sorted(first_steps)}")
    return Decision(max(promise.last_turn for promise in promises))


def judge(proposal: Proposal, standings: Sequence[Standing], *, waited_s: float) -> Verdict | Trial:
    """Whether the command is carried out, from what all ranks wrote; one rank judges for all.

    A rollback is carried out once all ranks have the same state ready, because a checkpoint is
    known to be undamaged only after it was read. A rank does not name a state again that it could
    not read, so there is an end of trials. `waited_s` is how long ago this rank found the proposal.
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
    """The newest state that all ranks hold, in the most trusted group that has one."""
    for kind in range(min((len(states) for states in held), default=0)):
        common = set(held[0][kind]).intersection(*(states[kind] for states in held))
        if common:
            return max(common)
    return None


def _steps(standing: Standing) -> str:
    steps = sorted({step for states in standing.states for step in states})
    return ", ".join(str(step) for step in steps) or "none"


_Ballot = TypeVar("_Ballot")

_KEPT_ROUNDS: Final = 8
"""Rounds that are kept: a slow rank may still be reading an earlier one."""


class Ledger:
    """Reads and writes messages. Every method raises StoreLostError if the store is gone."""

    def __init__(self, store: RankStore, world_size: int) -> None:
        self._store = store
        self._world_size = world_size

    def find(self, place: str, ballot: type[_Ballot]) -> _Ballot | None:
        """The message at a place; None if there is none."""
        written = self._store.get(place)
        return None if written is None else msgspec.json.decode(written, type=ballot)

    def put(self, place: str, ballot: object) -> None:
        """Write to a place that only this rank writes to."""
        self._store.put(place, _encoded(ballot))

    def settle(self, place: str, ballot: _Ballot) -> _Ballot:
        """Write to a place unless another rank was first; returns the first message there."""
        first = self._store.decide(place, _encoded(ballot).decode())
        return msgspec.json.decode(first, type=type(ballot))

    def count(self, place: str) -> int:
        """Add this rank to a count; returns how many ranks have been counted."""
        return self._store.count(place)

    def all_of(self, place: str, ballot: type[_Ballot]) -> list[_Ballot]:
        """The messages of all ranks below a place; missing ones are left out."""
        found = [self.find(f"{place}/{rank}", ballot) for rank in range(self._world_size)]
        return [one for one in found if one is not None]

    def forget(self, round_number: int) -> None:
        """Remove what each rank wrote in a round that ended long ago. Proposal, decision and
        verdict stay: they are short, and a slow rank needs them to catch up."""
        old = round_number - _KEPT_ROUNDS
        if old <= 0:
            return
        stages = takewhile(lambda stage: self._store.get(f"{old}/trial/{stage}"), count(1))
        places = [f"{old}/promise", *(f"{old}/standing/{stage}" for stage in (0, *stages))]
        for place, rank in product(places, range(self._world_size)):
            self._store.remove(f"{place}/{rank}")


def _encoded(ballot: object) -> bytes:
    """The message as JSON. Its texts are made encodable, as a refusal may name a file with an
    invalid byte."""
    return msgspec.json.encode(sendable_document(msgspec.to_builtins(ballot)))
