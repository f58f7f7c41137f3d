"""What a rule asks for when what was done first did not help: one rung after another.

A rung is a cure, a stop, or at last a person who is woken. The next one's turn comes when the
verdict on the one before is that the run did not recover, or when that one could not be done.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from runwatch.commands import AnyAction, LowerLr, Rollback, Stop
from runwatch.errors import CommandError
from runwatch.policy import ALREADY_PROPOSED, ALREADY_ROLLED_BACK, PolicyReason


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="page"):
    """Make the alert critical and tell people again: nothing that was tried has helped."""

    @property
    def kind(self) -> str:
        return "page"


Rung = LowerLr | Rollback | Stop | Page

RUNG_KINDS: Final = tuple(
    str(kind.__struct_config__.tag) for kind in (LowerLr, Rollback, Stop, Page)
)

MAX_RUNGS: Final = 8

CURES: Final = ("rollback", "lower_lr")
"""A checkpoint saves what there is, a stop gives up: neither promises a recovery."""

_PASSING: Final = (
    PolicyReason.ALREADY_OPEN,
    PolicyReason.COOLING_DOWN,
    ALREADY_PROPOSED,
    ALREADY_ROLLED_BACK,
)


def rung_from_document(document: object) -> Rung:
    """The rung of `{"kind": ..., arguments}`. Raises CommandError."""
    try:
        rung: Rung = msgspec.convert(document, Rung)
    except msgspec.ValidationError as error:
        raise CommandError(f"rung: {error}") from error
    return rung


def faults_of(ladder: Sequence[Rung]) -> list[tuple[int, str]]:
    """What is wrong with the order of rungs, each with its place."""
    faults: list[tuple[int, str]] = []
    for index, rung in enumerate(ladder):
        after = ladder[index + 1 :]
        if isinstance(rung, Page) and after:
            faults.append((index, "found page before other rungs, wanted it last"))
        if isinstance(rung, Stop) and any(not isinstance(one, Page) for one in after):
            faults.append(
                (index, "found stop before other rungs, wanted nothing after it but page")
            )
    return faults


def begins_at_once(actions: Sequence[AnyAction]) -> bool:
    """Whether the first rung's turn is when the alert fires: nothing is done before it that could
    help."""
    return not any(action.kind in CURES for action in actions)


def can_wait_for(objection: str) -> bool:
    """Whether what speaks against a rung now will pass by itself; else the rung is passed over."""
    return objection in _PASSING


def words_of(rung: Rung) -> str:
    match rung:
        case LowerLr(scale=scale):
            return f"lower the learning rate to {scale:g} of the schedule's"
        case Rollback():
            return "roll back and leave out the data at which it began"
        case Stop():
            return "stop"
        case Page():
            return "page a person"
