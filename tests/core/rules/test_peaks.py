"""An alert tells its worst: the peak with its place, the most layers, and not at every step."""

import math

import numpy as np
import pytest
from tests.core.rules.test_evaluator import rows_of, rules_of

from runwatch.alerts import AlertState, Reason
from runwatch.nonfinite import ABSENT_32
from runwatch.rules import Evaluator, Transition
from runwatch.rules.episodes import Peak

HIGH = rules_of({"alert": "High", "when": "loss > 1"})
LOW = rules_of({"alert": "Low", "when": "loss < 1"})
WIDE = rules_of({"alert": "Wide", "scope": "layer", "when": "grad_norm > 1"})


def worst(transitions: list[Transition]) -> list[tuple[str, int, Peak | None]]:
    return [(one.reason, one.step, one.peak) for one in transitions]


def test_the_end_tells_the_peak_and_where_it_was() -> None:
    told = Evaluator(HIGH).observe(rows_of([0.0, 2.0, 2.2, 2.1, 0.0]))

    assert worst(told) == [("held", 1, Peak(2.0, 1)), ("recovered", 4, Peak(2.2, 2))]


def test_what_became_a_fifth_worse_is_told_while_it_fires() -> None:
    told = Evaluator(HIGH).observe(rows_of([2.0, 2.2, 5.0, 5.5]))

    assert worst(told) == [("held", 0, Peak(2.0, 0)), ("worsened", 2, Peak(5.0, 2))]


def test_where_less_is_worse_the_peak_is_the_lowest() -> None:
    told = Evaluator(LOW).observe(rows_of([0.5, 0.1, 0.4]))

    assert worst(told)[-1] == ("worsened", 1, Peak(0.1, 1))


def test_a_value_that_grows_without_end_is_told_a_bounded_number_of_times() -> None:
    told = Evaluator(HIGH).observe(rows_of([1.01**step for step in range(1, 4000)]))

    assert 100 < len(told) < 240


@pytest.mark.parametrize("broken", [math.inf, -math.inf])
def test_infinity_is_told_once(broken: float) -> None:
    rule = HIGH if broken > 0 else LOW
    start = 2.0 if broken > 0 else 0.5
    told = Evaluator(rule).observe(rows_of([start, broken, broken, broken]))

    assert [one.reason for one in told if one.rule != "NonFinite"] == ["held", "worsened"]


def test_the_most_layers_that_failed_at_once_are_kept() -> None:
    stats = [[2.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    told = Evaluator(WIDE).observe(rows_of([1.0] * 4, stats))

    assert [(one.step, one.widest.num_layers) for one in told] == [(0, 1), (1, 3), (3, 3)]
    assert set(told[-1].widest.layers) == {"embed", "block", "head"}
    assert told[-1].state is AlertState.RESOLVED


def test_the_peak_outlives_a_restart() -> None:
    evaluator = Evaluator(HIGH)
    evaluator.observe(rows_of([2.0, 9.0, 3.0]))
    restored = Evaluator.restore(HIGH, evaluator.state())
    (told,) = restored.observe(rows_of([0.0], first_step=3))

    assert (told.reason, told.peak) == (Reason.RECOVERED, Peak(9.0, 1))
    assert not np.isnan(told.value)


def test_a_row_that_did_not_record_the_failing_layer_tells_nothing_of_it() -> None:
    absent = float(ABSENT_32)
    stats = [[2.0, 0.0, 0.0], [absent, 0.0, 0.0], [absent, 0.0, 2.0]]
    told = Evaluator(WIDE).observe(rows_of([1.0] * 3, stats))

    assert [(one.reason, one.step, one.value) for one in told] == [
        ("held", 0, 2.0),
        ("worsened", 2, 2.0),
    ]
    assert told[-1].peak == Peak(2.0, 0, "embed")


def test_an_alert_that_flaps_is_told_a_bounded_number_of_times() -> None:
    rules = rules_of({"alert": "Flaps", "when": "loss > 1", "keep_firing_for": {"steps": 5}})
    losses = [2.0, 0.0] * 200
    told = Evaluator(rules).observe(rows_of([*losses, *[0.0] * 5]))

    assert len(told) == 2 + 2 * 8
    assert told[-2].state is AlertState.FIRING
    assert (told[-1].reason, told[-1].step) == (Reason.RECOVERED, 404)


def test_an_alert_that_flaps_still_tells_that_it_became_worse() -> None:
    rules = rules_of({"alert": "Flaps", "when": "loss > 1", "keep_firing_for": {"steps": 5}})
    told = Evaluator(rules).observe(rows_of([*[2.0, 0.0] * 50, 9.0]))

    assert (told[-1].reason, told[-1].peak) == (Reason.WORSENED, Peak(9.0, 100))
