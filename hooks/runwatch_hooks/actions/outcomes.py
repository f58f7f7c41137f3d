"""Results of commands, and other things to report at a boundary."""

from dataclasses import dataclass

from runwatch.commands import Command, Receipt
from runwatch.frames import Event, Scalar


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, and what the watch must do about it."""

    receipt: Receipt
    events: tuple[Event, ...] = ()
    rolled_back_to: int | None = None
    """The step to train next, after a rollback; the segment grows by one."""
    fault_step: int | None = None
    """The step at which the trouble began, if a rollback names one."""
    stop: bool = False
    interrupt: BaseException | None = None
    """What interrupted a rollback, to be raised once it is recorded."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Receipts and events without a new command, such as of checkpoints written or found good."""

    receipts: tuple[Receipt, ...] = ()
    events: tuple[Event, ...] = ()


def event_of(
    kind: str, step: int, now: float, command: Command | None, detail: dict[str, Scalar]
) -> Event:
    """An event, with the id and reason of the command that caused it."""
    told: dict[str, Scalar | list[str]] = {**detail}
    if command is not None:
        told |= {"command_id": command.id, "reason": command.reason}
    return Event(step, kind, now, told)
