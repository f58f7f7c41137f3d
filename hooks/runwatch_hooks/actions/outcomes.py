"""What came of commands, and what else there is to tell of a boundary."""

from dataclasses import dataclass

from runwatch.commands import Command, Receipt
from runwatch.frames import Event, Scalar


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to, and what the watch must do about it."""

    receipt: Receipt
    events: tuple[Event, ...] = ()
    rolled_back_to: int | None = None
    """The number of the step to be trained next; the segment grows by one."""
    fault_step: int | None = None
    """The step at which it began to go wrong, where a rollback names one."""
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Notes:
    """What came up at a boundary without a command: checkpoints that are written, or proved."""

    receipts: tuple[Receipt, ...] = ()
    events: tuple[Event, ...] = ()


def event_of(
    kind: str, step: int, now: float, command: Command | None, detail: dict[str, Scalar]
) -> Event:
    """An event, with the command that it answers to."""
    told: dict[str, Scalar | list[str]] = {**detail}
    if command is not None:
        told |= {"command_id": command.id, "reason": command.reason}
    return Event(step, kind, now, told)
