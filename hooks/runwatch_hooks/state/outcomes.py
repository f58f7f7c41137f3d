"""Results of commands, and the errors by which an action on the run fails."""

from dataclasses import dataclass

from runwatch.commands import Command, Receipt
from runwatch.errors import RunwatchError
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


class ActionError(RunwatchError):
    """An action that failed and changed nothing.

    ActionError (RunwatchError)
    ├── StateMismatchError       a saved state does not fit the live objects
    ├── NotPlainError            a value that cannot be written to disk without pickling a class
    ├── CheckpointError          a checkpoint that cannot be written
    │   └── DamagedCheckpointError   one that cannot be read back as it was written
    ├── NoGoodStateError         nothing to roll back to
    └── LrScaleError             an optimizer whose learning rate cannot be scaled
    """


class StateMismatchError(ActionError):
    pass


class NotPlainError(ActionError):
    pass


class CheckpointError(ActionError):
    pass


class DamagedCheckpointError(CheckpointError):
    pass


class NoGoodStateError(ActionError):
    pass


class LrScaleError(ActionError):
    pass
