"""What is not finite now and then is one alert, and hides no other break."""

import math
from collections.abc import Sequence

import numpy as np

from runwatch.rules import Evaluator, Rows, Transition

LAYERS = ("embed", "block", "head")


def rows_of(broken_at: Sequence[tuple[int, str]], num_rows: int) -> Rows:
    """Gradients of three layers, one of them not finite at each of some steps."""
    stats = np.zeros((num_rows, 1, len(LAYERS)), np.float32)
    norms = np.ones((num_rows, 1))
    for step, layer in broken_at:
        stats[step, 0, LAYERS.index(layer)] = 4.0
        norms[step] = math.nan
    return Rows(
        steps=np.arange(num_rows, dtype=np.int64),
        times=np.arange(num_rows, dtype=np.float64),
        metric_names=("grad_norm",),
        metrics=norms,
        layer_names=LAYERS,
        stat_names=("nonfinite",),
        stats=stats,
    )


def firing(broken_at: Sequence[tuple[int, str]], num_rows: int) -> list[int]:
    """The steps at which somebody is told that something broke: not as it comes back."""
    told = Evaluator(()).observe(rows_of(broken_at, num_rows))
    return [one.step for one in told if one.reason.value == "held"]


def resolved(told: Sequence[Transition]) -> list[int]:
    return [one.step for one in told if one.state.value == "resolved"]


def changes(told: Sequence[Transition]) -> list[tuple[int, str, str]]:
    return [(one.step, one.reason.value, one.episode) for one in told]


def test_a_gradient_that_breaks_every_thirtieth_step_is_told_twice() -> None:
    assert firing([(step, "block") for step in range(0, 600, 30)], 600) == [0, 30]


def test_a_gradient_that_breaks_every_fiftieth_step_is_told_three_times() -> None:
    assert firing([(step, "block") for step in range(0, 600, 50)], 600) == [0, 50, 100]


def test_a_gradient_that_broke_once_is_over_after_twenty_steps() -> None:
    assert resolved(Evaluator(()).observe(rows_of([(5, "block")], 40))) == [26]


def test_what_came_back_is_kept_for_twice_as_long_each_time() -> None:
    broken = [(0, "block"), (10, "block"), (20, "block")]

    assert resolved(Evaluator(()).observe(rows_of(broken, 200))) == [101]


def test_what_never_stays_away_is_over_in_the_end() -> None:
    broken = [(step, "block") for step in range(0, 100, 2)]

    assert resolved(Evaluator(()).observe(rows_of(broken, 800))) == [739]


def test_another_layer_that_breaks_meanwhile_is_told() -> None:
    broken = [(0, "block"), (10, "block"), (20, "block"), (60, "head")]
    told = Evaluator(()).observe(rows_of(broken, 70))

    assert resolved(told) == [60]
    assert [(one.step, one.first_layer) for one in told if one.reason.value == "held"] == [
        (0, "block"),
        (60, "head"),
    ]


def test_another_layer_that_breaks_at_once_is_part_of_the_same() -> None:
    assert firing([(0, "block"), (10, "block"), (25, "head")], 40) == [0]


def test_rows_one_by_one_and_a_restart_between_them_change_nothing() -> None:
    rows = rows_of([(0, "block"), (10, "block"), (60, "block"), (130, "head")], 200)
    evaluator = Evaluator(())
    told: list[Transition] = []
    for row in range(rows.num_rows):
        evaluator = Evaluator.restore((), evaluator.state())
        told += evaluator.observe(rows.between(row, row + 1))

    assert changes(told) == changes(Evaluator(()).observe(rows))
