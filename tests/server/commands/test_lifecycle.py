"""What the ranks' answers add up to."""

import pytest

from runwatch.commands import CommandState
from runwatch_server.commands.lifecycle import can_be_cancelled, settle

ACCEPTED, APPLIED, FAILED = CommandState.ACCEPTED, CommandState.APPLIED, CommandState.FAILED
DELIVERED, CANCELLED = CommandState.DELIVERED, CommandState.CANCELLED


@pytest.mark.parametrize(
    ("state", "answers", "expected"),
    [
        (DELIVERED, {}, DELIVERED),
        (DELIVERED, {0: ACCEPTED}, ACCEPTED),
        (ACCEPTED, {0: APPLIED}, ACCEPTED),
        (ACCEPTED, {0: APPLIED, 1: APPLIED}, APPLIED),
        (ACCEPTED, {0: APPLIED, 1: FAILED}, FAILED),
        (ACCEPTED, {0: CommandState.REJECTED, 1: FAILED}, FAILED),
    ],
)
def test_a_command_is_applied_only_when_every_rank_applied_it(
    state: CommandState, answers: dict[int, CommandState], expected: CommandState
) -> None:
    assert settle(state, answers, 2) is expected


def test_what_was_applied_was_applied_even_if_we_had_given_it_up() -> None:
    assert settle(CANCELLED, {0: APPLIED}, 1) is APPLIED


def test_what_was_given_up_stays_so_for_any_other_answer() -> None:
    assert settle(CANCELLED, {0: FAILED}, 1) is CANCELLED


def test_an_end_is_an_end() -> None:
    assert settle(FAILED, {0: APPLIED}, 1) is FAILED


def test_it_is_too_late_to_cancel_what_a_rank_has_accepted() -> None:
    assert can_be_cancelled(DELIVERED)
    assert not can_be_cancelled(ACCEPTED)
