"""`first(x, n)`: where an attempt began, and that nothing later moves it."""

import math

import numpy as np

from runwatch.alerts import AlertState
from runwatch.nonfinite import ABSENT_64
from runwatch.rules import Evaluator, Rows, load_rules
from runwatch.rules.transitions import Transition

ABSENT = float(ABSENT_64)

RULES = load_rules(
    {
        "version": 1,
        "groups": [
            {
                "name": "start",
                "rules": [
                    {
                        "alert": "Above",
                        "when": "loss > 2 * first(loss, 3)",
                        "severity": "info",
                        "annotations": {"summary": "{value}"},
                    }
                ],
            }
        ],
    }
)


def rows(loss: list[float], first_step: int = 0, attempt: int = 1, segment: int = 0) -> Rows:
    return Rows(
        steps=np.arange(first_step, first_step + len(loss), dtype=np.int64),
        times=np.arange(first_step, first_step + len(loss), dtype=np.float64),
        metric_names=("loss",),
        metrics=np.array(loss, np.float64).reshape(-1, 1),
        layer_names=(),
        stat_names=(),
        stats=np.empty((len(loss), 0, 0), np.float32),
        attempt=attempt,
        segment=segment,
    )


def firing(transitions: list[Transition]) -> list[int]:
    return [told.step for told in transitions if told.state is AlertState.FIRING]


def test_the_median_of_the_first_samples_is_what_later_ones_are_set_against() -> None:
    evaluator = Evaluator(RULES)

    assert firing(evaluator.observe(rows([1.0, 9.0, 2.0, 3.0, *[1.0] * 2000, 5.0]))) == [2004]


def test_it_says_nothing_until_all_first_samples_are_there() -> None:
    assert firing(Evaluator(RULES).observe(rows([1.0, 1.0, 50.0]))) == []


def test_neither_nan_nor_what_is_missing_counts_as_a_first_sample() -> None:
    loss = [math.nan, 1.0, ABSENT, math.inf, 1.0, 1.0, 5.0]

    told = [t for t in Evaluator(RULES).observe(rows(loss)) if t.rule == "Above"]

    assert firing(told) == [6]


def test_rows_that_come_one_by_one_give_the_same_as_rows_at_once() -> None:
    loss = [1.0, 1.5, 1.2, 2.0, 3.0, 1.0, 3.5]
    evaluator = Evaluator(RULES)

    singly = [t for i, x in enumerate(loss) for t in evaluator.observe(rows([x], first_step=i))]

    assert singly == Evaluator(RULES).observe(rows(loss))


def test_a_rollback_into_the_first_samples_takes_new_ones_in_their_place() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([1.0, 1.0, 1.0, 1.0]))

    after = evaluator.observe(rows([9.0, 9.0, 10.0, 19.0], first_step=1, segment=1))

    assert firing(after) == [4]


def test_a_rollback_behind_the_first_samples_leaves_them() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([1.0, 1.0, 1.0, 1.0]))

    assert firing(evaluator.observe(rows([9.0], first_step=3, segment=1))) == [3]


def test_another_attempt_has_first_samples_of_its_own() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([1.0, 1.0, 1.0]))

    assert firing(evaluator.observe(rows([5.0] * 6, first_step=3, attempt=2))) == []


def test_a_restored_evaluator_still_knows_where_the_attempt_began() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([1.0, 1.0, 1.0, *[1.5] * 50]))

    restored = Evaluator.restore(RULES, evaluator.state())

    assert firing(restored.observe(rows([5.0], first_step=53))) == [53]


def test_a_median_of_as_many_samples_has_a_window_of_its_own() -> None:
    document = {
        "version": 1,
        "groups": [
            {
                "name": "start",
                "rules": [
                    {
                        "alert": "Risen",
                        "when": "median(loss, 3) > 2 * first(loss, 3)",
                        "severity": "info",
                        "annotations": {"summary": "{value}"},
                    }
                ],
            }
        ],
    }

    assert firing(Evaluator(load_rules(document)).observe(rows([1.0] * 3 + [5.0] * 4))) == [5]
