"""Where ranks stand among the others: in time, and by their loss."""

import math

import numpy as np
import pytest

from runwatch_hooks.ranks.standing import Pace, Standings, pace_of


def standings(own_times: list[list[float]], losses: list[list[float]] | None = None) -> Standings:
    """Of steps in order, each with a number a rank."""
    made = Standings(len(own_times[0]))
    for step, times in enumerate(own_times):
        for rank, own_time_s in enumerate(times):
            loss = 1.0 if losses is None else losses[step][rank]
            made.take(rank, Pace(0, step, own_time_s, loss))
    return made


def test_the_rank_that_works_longer_than_the_others_lags_by_the_difference() -> None:
    found = standings([[0.1, 0.1, 0.4, 0.11]] * 20).lags_s()

    assert found == pytest.approx([0.0, 0.0, 0.3, 0.01])


def test_of_two_ranks_the_slower_lags_by_all_of_it() -> None:
    assert standings([[0.4, 0.1]] * 20).lags_s() == pytest.approx([0.3, 0.0])


def test_a_rank_that_evaluates_alone_now_and_then_does_not_lag() -> None:
    steps = [[5.0 if step % 4 == 0 else 0.1, 0.1, 0.1] for step in range(64)]

    assert standings(steps).lags_s() == pytest.approx([0.0, 0.0, 0.0])


def test_a_handful_of_steps_says_nothing() -> None:
    assert np.isnan(standings([[0.1, 0.4]] * 15).lags_s()).all()


def test_a_step_that_one_rank_cannot_tell_of_is_not_compared() -> None:
    found = standings([[0.1, math.nan]] * 40)

    assert np.isnan(found.lags_s()).all()
    assert found.loss_gaps() == pytest.approx([0.0, 0.0])


def test_a_gap_is_a_share_of_the_others_loss() -> None:
    found = standings([[0.1] * 4] * 20, [[2.0, 2.0, 2.0, 5.0]] * 20).loss_gaps()

    assert found == pytest.approx([0.0, 0.0, 0.0, 1.5])


def test_losses_that_scatter_around_zero_are_not_far_from_each_other() -> None:
    noise = np.random.default_rng(3).normal(0.0, 0.1, (32, 4))

    assert np.abs(standings([[0.1] * 4] * 32, noise.tolist()).loss_gaps()).max() < 1.0


def test_losses_that_are_all_zero_have_no_gap() -> None:
    assert np.isnan(standings([[0.1] * 2] * 32, [[0.0, 0.0]] * 32).loss_gaps()).all()


def test_steps_of_which_a_rank_never_tells_do_not_pile_up() -> None:
    found = Standings(2)
    for step in range(5000):
        found.take(0, Pace(0, step, 0.1, 1.0))
    for step in range(4980, 5000):
        found.take(1, Pace(0, step, 0.2, 1.0))

    assert found.lags_s() == pytest.approx([0.0, 0.1])


def test_a_row_of_neither_has_no_pace_and_a_broken_loss_is_left_to_others() -> None:
    assert pace_of(0, 3, {"val_loss": 1.0}) is None
    assert pace_of(0, 3, {"loss": math.nan}) is None
    found = pace_of(0, 3, {"loss": math.inf, "own_time": 0.2})
    assert found is not None
    assert math.isnan(found.loss)
