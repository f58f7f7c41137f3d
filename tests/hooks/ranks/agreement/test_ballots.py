"""What follows from the ranks' promises, and from what they can do where they stand."""

import pytest

from runwatch.commands import AnyAction, Command, CommandState, Rollback, Stop
from runwatch.vocabulary import CommandId
from runwatch_hooks.ranks.ballots import (
    Decision,
    Promise,
    Proposal,
    Standing,
    Trial,
    Verdict,
    common_state,
    decide,
    judge,
)

VALID_FOR_S = 1000.0


def proposal(action: AnyAction) -> Proposal:
    return Proposal(Command(CommandId("c1"), action, 1, expires_at=1e12), VALID_FOR_S)


def test_all_stop_at_the_furthest_turn_that_was_promised() -> None:
    assert decide([Promise(7, 0), Promise(19, 0), Promise(3, 0)]) == Decision(19)


def test_one_rank_that_refuses_is_enough() -> None:
    decision = decide([Promise(7, 0), Promise(9, 0, refusal="stop: the trainer allows nothing")])

    assert decision == Decision(
        None, "rank 1: stop: the trainer allows nothing", CommandState.REJECTED
    )


def test_ranks_that_count_their_steps_apart_do_nothing_together() -> None:
    decision = decide([Promise(7, 0), Promise(9, 1)])

    assert (decision.turn, decision.refusal) == (None, "the ranks count their steps from [0, 1]")


def test_a_command_is_judged_by_how_long_it_was_valid_when_it_was_proposed() -> None:
    standings = [Standing(), Standing()]

    assert judge(proposal(Stop()), standings, waited_s=1000.0) == Verdict(is_go=True)
    late = judge(proposal(Stop()), standings, waited_s=1001.0)
    assert isinstance(late, Verdict)
    assert (late.is_go, late.state) == (False, CommandState.EXPIRED)


@pytest.mark.parametrize("waited_s", [float("nan"), float("inf")])
def test_a_clock_that_tells_nothing_lets_nothing_through(waited_s: float) -> None:
    verdict = judge(proposal(Stop()), [Standing()], waited_s=waited_s)

    assert isinstance(verdict, Verdict)
    assert not verdict.is_go


def test_a_rollback_tries_the_newest_trusted_state_that_all_hold() -> None:
    standings = [
        Standing(states=((9, 19), (9, 19, 29))),
        Standing(states=((9, 19, 29), (9, 19, 29))),
    ]

    assert judge(proposal(Rollback()), standings, waited_s=0) == Trial(19)


def test_a_rollback_is_done_once_all_have_its_state_ready() -> None:
    standings = [
        Standing(states=((9, 19),), ready=19),
        Standing(states=((9, 19, 29),), ready=19),
    ]

    assert judge(proposal(Rollback()), standings, waited_s=0) == Verdict(is_go=True, to_step=19)


def test_a_state_that_one_rank_could_not_get_ready_is_passed_over_by_all() -> None:
    standings = [Standing(states=((9, 19),), ready=19), Standing(states=((9,),))]

    assert judge(proposal(Rollback()), standings, waited_s=0) == Trial(9)


def test_a_state_that_each_trusts_for_another_reason_will_do() -> None:
    assert common_state([((9,), (9, 19)), ((), (19,))]) == 19


def test_no_common_state_is_no_rollback() -> None:
    verdict = judge(
        proposal(Rollback()), [Standing(states=((9,),)), Standing(states=((19,),))], waited_s=0
    )

    assert isinstance(verdict, Verdict)
    assert (verdict.is_go, verdict.to_step) == (False, None)
    assert "rank 0: 9; rank 1: 19" in verdict.refusal
