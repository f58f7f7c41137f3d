"""The life of a command: which state may follow which, and what the ranks' answers add up to.

    proposed -> queued -> delivered -> accepted -> applied | failed | rejected | expired | cancelled

A command is applied only when every rank of its attempt has applied it. The truth wins over our
own view: a receipt that says `applied` counts even after we gave the command up.
"""

from collections.abc import Mapping
from typing import Final

from runwatch.commands import CommandState

DELIVERABLE: Final = (CommandState.QUEUED, CommandState.DELIVERED, CommandState.ACCEPTED)
"""Repeated to a rank in every reply until that rank has given its last answer."""

UNDER_WAY: Final = (CommandState.PROPOSED, *DELIVERABLE)

RECEIPT_STATES: Final = (
    CommandState.ACCEPTED,
    CommandState.APPLIED,
    CommandState.FAILED,
    CommandState.REJECTED,
    CommandState.EXPIRED,
)
"""What a rank may answer."""

_GIVEN_UP: Final = (CommandState.CANCELLED, CommandState.EXPIRED)
_REFUSALS: Final = (CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED)
"""Worst first: where ranks disagree, the command counts as the worst of their answers."""


def can_be_approved(state: CommandState) -> bool:
    return state is CommandState.PROPOSED


def can_be_cancelled(state: CommandState) -> bool:
    """Whether a person may still withdraw it: not once a rank has accepted."""
    return state in (CommandState.PROPOSED, CommandState.QUEUED, CommandState.DELIVERED)


def is_final_answer(known: CommandState | None) -> bool:
    """Whether a rank's stored answer stands: a second one would be a retry of its receipt."""
    return known is not None and known.is_ended


def settle(
    state: CommandState, answers: Mapping[int, CommandState], num_ranks: int
) -> CommandState:
    """The state of a command after the answers of its ranks so far."""
    if state.is_ended and state not in _GIVEN_UP:
        return state
    found = tuple(answers.values())
    if found.count(CommandState.APPLIED) >= num_ranks:
        return CommandState.APPLIED
    if state in _GIVEN_UP:
        return state
    refusal = next((worst for worst in _REFUSALS if worst in found), None)
    if refusal is not None:
        return refusal
    return CommandState.ACCEPTED if found else state
