"""The progress of a command, station by station, as the page draws it. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.commands import (
    ACTION_KINDS,
    AnyAction,
    Checkpoint,
    CommandState,
    Detail,
    LowerLr,
    Rollback,
    Stop,
)
from runwatch.ladders import CURES
from runwatch.number_texts import count
from runwatch.vocabulary import PolicyMode
from runwatch_server.alerts.records import Recovery
from runwatch_server.commands.records import CommandEvent, CommandRecord


class Standing(StrEnum):
    """Where a command is in relation to a station."""

    DONE = "done"
    HERE = "here"
    AHEAD = "ahead"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    name: str
    standing: Standing
    words: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class RankAnswer:
    """The newest receipt of a rank."""

    rank: int
    state: str
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """A command, how far it has come, and what each rank answered."""

    command: CommandRecord
    words: str
    stations: tuple[Station, ...]
    answers: tuple[RankAnswer, ...]
    is_allowed: bool = True
    """Whether the trainer's allow-list has its kind of action; if not, approving it is in vain."""
    is_awaited: bool = True
    """Whether it waits for a person, if it is a proposal: under `observe` nothing does."""

    @property
    def is_under_way(self) -> bool:
        return not self.command.state.is_ended

    @property
    def needs_attention(self) -> bool:
        is_proposal = self.command.state is CommandState.PROPOSED
        return self.is_under_way and (self.is_awaited or not is_proposal)

    @property
    def outcome(self) -> str:
        """How it stands or ended, as a heading says it."""
        match self.command.state:
            case CommandState.PROPOSED:
                return "Proposed"
            case CommandState.APPLIED:
                return _DONE[self.command.kind]
            case state if state.is_ended:
                return self.stations[-1].name
            case _:
                return "On its way"


_ROAD: Final = (
    (CommandState.QUEUED, "Queued", "goes out with the next reply to the trainer"),
    (CommandState.DELIVERED, "Delivered", "on its way to the ranks"),
    (CommandState.ACCEPTED, "Agreed", "the ranks agree on a step"),
    (CommandState.APPLIED, "Applied", "at the boundary of that step"),
)


_DONE: Final = {
    "checkpoint": "Checkpoint written",
    "detail": "Looked closely",
    "lower_lr": "Learning rate changed",
    "rollback": "Rolled back",
    "stop": "Stopped",
}


def words_of(action: AnyAction) -> str:
    """An action in words."""
    match action:
        case Checkpoint():
            return "Write a checkpoint"
        case Detail(steps=steps):
            return f"Look closely at the next {count(steps)} steps"
        case LowerLr(scale=scale):
            return f"Train at {scale:g} × the schedule's learning rate"
        case Rollback():
            return _words_of_rollback(action)
        case Stop():
            return "Stop the run"


def _words_of_rollback(action: Rollback) -> str:
    match action:
        case Rollback(to_step=int(step), before_step=int(bad_step)):
            state = f"the state after step {count(step)}"
            return f"Roll back to {state}, without the batches of {count(bad_step)}"
        case Rollback(to_step=int(step)):
            return f"Roll back to the state after step {count(step)}"
        case Rollback(before_step=int(step)):
            return f"Roll back to the newest good state before step {count(step)}"
        case _:
            return "Roll back to the newest good state"


def travel_of(
    command: CommandRecord,
    events: Sequence[CommandEvent],
    *,
    num_ranks: int = 1,
    recovery: Recovery | None = None,
    allow: Collection[str] = ACTION_KINDS,
    policy: PolicyMode = PolicyMode.ASK,
) -> Travel:
    """The progress of a command; `recovery` is that of the alert that caused it, `allow` what the
    trainer allows, and `policy` the run's."""
    first = {event.kind: event for event in reversed(events)}
    answers = _answers(events)
    stations = [*_proposal(command, first), *_road(command, first, answers, num_ranks)]
    if command.state is CommandState.APPLIED and command.kind in CURES and recovery is not None:
        stations.append(_recovery(recovery))
    return Travel(
        command=command,
        words=words_of(command.action),
        stations=tuple(stations),
        answers=answers,
        is_allowed=command.kind in allow,
        is_awaited=policy is PolicyMode.ASK and command.after_id is None,
    )


def _answers(events: Sequence[CommandEvent]) -> tuple[RankAnswer, ...]:
    newest: dict[int, RankAnswer] = {}
    for event in events:
        if event.kind == "receipt" and event.rank is not None:
            step = event.detail.get("step")
            newest[event.rank] = RankAnswer(
                event.rank, str(event.detail.get("state")), step if isinstance(step, int) else None
            )
    return tuple(newest[rank] for rank in sorted(newest))


def _proposal(command: CommandRecord, first: Mapping[str, CommandEvent]) -> list[Station]:
    proposed = first.get(CommandState.PROPOSED)
    if proposed is None:
        return []
    waits = command.state is CommandState.PROPOSED
    return [
        Station(
            name="Proposed",
            standing=Standing.HERE if waits else Standing.DONE,
            words="waits for a person" if waits else "",
            at=proposed.at,
        )
    ]


def _road(
    command: CommandRecord,
    first: Mapping[str, CommandEvent],
    answers: Sequence[RankAnswer],
    num_ranks: int,
) -> list[Station]:
    reached = max((i for i, (state, *_) in enumerate(_ROAD) if state in first), default=-1)
    passed = [
        Station(
            name=name,
            standing=Standing.DONE,
            words=_words_at(state, answers, num_ranks) + _outcome(command, state),
            at=first[state].at if state in first else None,
        )
        for state, name, _ in _ROAD[: reached + 1]
    ]
    if command.state.is_ended and command.state is not CommandState.APPLIED:
        return [*passed, _end(command, first)]
    is_moving = command.state is not CommandState.PROPOSED
    ahead = [
        Station(
            name=name,
            standing=Standing.HERE if is_moving and index == 0 else Standing.AHEAD,
            words=words if is_moving and index == 0 else "",
        )
        for index, (_, name, words) in enumerate(_ROAD[reached + 1 :])
    ]
    return passed + ahead


def _words_at(state: CommandState, answers: Sequence[RankAnswer], num_ranks: int) -> str:
    steps = {answer.step for answer in answers if answer.step is not None}
    at_step = f"at step {count(max(steps))}" if steps else ""
    if state is CommandState.ACCEPTED:
        return at_step
    if state is CommandState.APPLIED and num_ranks > 1:
        applied = sum(answer.state == CommandState.APPLIED for answer in answers)
        return f"{applied} of {count(num_ranks)} ranks {at_step}".strip()
    return at_step if state is CommandState.APPLIED else ""


def _outcome(command: CommandRecord, state: CommandState) -> str:
    """The result, as the trainer reports it."""
    if state is not CommandState.APPLIED:
        return ""
    to_step, path = command.detail.get("to_step"), command.detail.get("path")
    if isinstance(to_step, int):
        return f", back to the state after step {count(to_step)}"
    return f": {path}" if path else ""


def _end(command: CommandRecord, first: Mapping[str, CommandEvent]) -> Station:
    """The station at which it ended instead. A person rejects what a rule proposed, and withdraws
    what was sent; the service withdraws what there is no reason for any more; a trainer refuses."""
    name = command.state.value.capitalize()
    if command.state is CommandState.CANCELLED:
        was_proposal = CommandState.PROPOSED in first and CommandState.QUEUED not in first
        is_rejected = was_proposal and "reason" not in command.detail
        name = "Rejected" if is_rejected else "Withdrawn"
    elif command.state is CommandState.REJECTED:
        name = "Refused"
    why = command.detail.get("error") or command.detail.get("reason") or ""
    return Station(
        name=name,
        standing=Standing.BROKEN,
        words=str(why),
        at=command.ended_at,
    )


def _recovery(recovery: Recovery) -> Station:
    match recovery:
        case Recovery.WATCHED:
            return Station(name="Recovery", standing=Standing.HERE, words="is being watched")
        case Recovery.RECOVERED:
            return Station(name="Recovered", standing=Standing.DONE)
        case Recovery.NOT_RECOVERED:
            words = "the trouble went on, or came back"
            return Station(name="Not recovered", standing=Standing.BROKEN, words=words)
        case Recovery.WORSE:
            words = "the alert still fires, and is worse"
            return Station(name="Made worse", standing=Standing.BROKEN, words=words)
        case Recovery.NOT_APPLIED:
            return Station(name="Not applied", standing=Standing.BROKEN)
