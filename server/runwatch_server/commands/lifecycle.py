"""The state machine of a command: which state may follow which, and how ranks' answers combine.

    proposed -> queued -> delivered -> accepted -> applied | failed | rejected | expired | cancelled

A command is applied only when every rank of its attempt has applied it. What really happened wins
over what we assumed: a receipt that says `applied` counts even after we gave the command up.
"""

from collections.abc import Mapping
from typing import Final

from runwatch.commands import CommandState

DELIVERABLE: Final = (CommandState.QUEUED, CommandState.DELIVERED, CommandState.ACCEPTED)
"""States in which a command is repeated to a rank in every reply until its final answer."""

UNDER_WAY: Final = (CommandState.PROPOSED, *DELIVERABLE)

RECEIPT_STATES: Final = (
    CommandState.ACCEPTED,
    CommandState.APPLIED,
    CommandState.FAILED,
    CommandState.REJECTED,
    CommandState.EXPIRED,
)
"""The states that a rank may answer with."""

_GIVEN_UP: Final = (CommandState.CANCELLED, CommandState.EXPIRED)
_REFUSALS: Final = (CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED)
"""Worst first: if ranks disagree, the worst answer decides."""


def can_be_approved(state: CommandState) -> bool:
    return state is CommandState.PROPOSED


def can_be_cancelled(state: CommandState) -> bool:
    """Whether a person may still cancel it: not once a rank has accepted it."""
    return state in (CommandState.PROPOSED, CommandState.QUEUED, CommandState.DELIVERED)


def is_final_answer(known: CommandState | None) -> bool:
    """Whether a rank's stored answer is final: a second one can only be a retry."""
    return known is not None and known.is_ended


def settle(
    state: CommandState, answers: Mapping[int, CommandState], num_ranks: int
) -> CommandState:
    """The state of a command, given its ranks' answers so far."""
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
