"""What can be asked of a running trainer, and what it answers.

A command's arguments are absolute ('LR scale 0.5', never 'halve'), so that applying it twice
would change nothing more; all the same it is applied at most once, by its id.
"""

import math
from enum import StrEnum
from typing import Annotated

import msgspec

from runwatch.errors import CommandError
from runwatch.frames import MAX_ATTEMPT, MAX_RANK, MAX_STEP, Scalar
from runwatch.vocabulary import CommandId

MAX_DETAIL_STEPS = 1000
"""What one command can ask for: each such step reads the weights and what modules return."""


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a rule or a person asks for."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class Checkpoint(Action, frozen=True, tag="checkpoint"):
    """Write the whole training state to disk at the next boundary."""


class Detail(Action, frozen=True, tag="detail"):
    """Take histograms and activation stats at each of the next steps."""

    steps: int = 50
    """How many."""

    def __post_init__(self) -> None:
        if not 0 < self.steps <= MAX_DETAIL_STEPS:
            raise CommandError(f"steps: found {self.steps}, wanted 1 to {MAX_DETAIL_STEPS}")


class LowerLr(Action, frozen=True, tag="lower_lr"):
    """Train at this multiple of what the schedule says, until told otherwise."""

    scale: float
    """Above 0, at most 1; the multiple of the schedule's own rate, not of the one in force."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and 0.0 < self.scale <= 1.0):
            raise CommandError(f"scale: found {self.scale}, wanted more than 0 and at most 1")


class Rollback(Action, frozen=True, tag="rollback"):
    """Go back, in place, to the newest good snapshot or checkpoint before a step."""

    before_step: int | None = None
    """Where it went wrong: only states taken before this step count as good, and its batches are
    left out afterwards, where the loader can be positioned. None: any good one. A rule leaves it
    out, and the onset of its alert is filled in."""
    to_step: int | None = None
    """Exactly the state after this step, as chosen by a person, good or not."""

    def __post_init__(self) -> None:
        for place, step in (("before_step", self.before_step), ("to_step", self.to_step)):
            if step is not None and not 0 <= step <= MAX_STEP:
                raise CommandError(f"{place}: found {step}, wanted a step from 0 to {MAX_STEP}")


class Stop(Action, frozen=True, tag="stop"):
    """Leave the training loop at the next boundary, in order."""


AnyAction = Checkpoint | Detail | LowerLr | Rollback | Stop

ACTION_KINDS = tuple(
    str(kind.__struct_config__.tag) for kind in (Checkpoint, Detail, LowerLr, Rollback, Stop)
)


class CommandState(StrEnum):
    """proposed -> queued -> delivered -> accepted -> one of the ends."""

    PROPOSED = "proposed"
    """Waits for a person (policy `ask`), or is only told (policy `observe`)."""
    QUEUED = "queued"
    DELIVERED = "delivered"
    ACCEPTED = "accepted"
    APPLIED = "applied"
    FAILED = "failed"
    REJECTED = "rejected"
    """By a person, or by the trainer's allow-list."""
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_ended(self) -> bool:
        return self in _ENDS


_ENDS = (
    CommandState.APPLIED,
    CommandState.FAILED,
    CommandState.REJECTED,
    CommandState.EXPIRED,
    CommandState.CANCELLED,
)


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An action addressed to a run, on its way to the trainer."""

    id: CommandId
    action: AnyAction
    attempt: int
    """The attempt it is meant for: one that comes later must not obey it."""
    expires_at: float
    """Unix seconds by the service's clock; past it the command must not be applied."""
    reason: str = ""
    requested_by: str = ""
    signature: str = ""
    """Of `runwatch.signatures`; empty, and left out, for an attempt that was given no secret: a
    trainer of before signatures would not understand a command with one."""


SIGNATURE = "signature"
"""In a receipt's detail: `missing` or `wrong`, where the command was refused for that."""


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank's answer to a command."""

    command_id: CommandId
    """Which it answers."""
    attempt: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)]
    """In which it was carried out."""
    rank: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]
    """Whose answer it is."""
    state: CommandState
    """`accepted`, `applied`, `failed`, `rejected` or `expired`."""
    step: Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
    """The boundary at which it was decided: the number of the step that comes next."""
    detail: dict[str, Scalar] = {}
    """`error`, `path`, `to_step`, `lr_scale`, ..."""


def action_from_document(document: object) -> AnyAction:
    """The action of `{"kind": ..., arguments}`. Raises CommandError."""
    try:
        action: AnyAction = msgspec.convert(document, AnyAction)
    except msgspec.ValidationError as error:
        raise CommandError(f"action: {error}") from error
    return action
