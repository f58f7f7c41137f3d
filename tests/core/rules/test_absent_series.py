"""A rule whose series a run does not record: passed over, and none the worse when they come."""

import numpy as np

from runwatch.alerts import AlertState, Reason
from runwatch.rules import Evaluator, Rows, load_rules


def rows(name: str, values: list[float], first_step: int) -> Rows:
    return Rows(
        steps=np.arange(first_step, first_step + len(values), dtype=np.int64),
        times=np.arange(first_step, first_step + len(values), dtype=np.float64),
        metric_names=(name,),
        metrics=np.array(values, np.float64).reshape(-1, 1),
        layer_names=(),
        stat_names=(),
        stats=np.empty((len(values), 0, 0), np.float32),
    )


def states_after(when: str) -> list[tuple[AlertState, int]]:
    """Of a rule over val_loss, when ten rows of it stand on both sides of ten without it."""
    rule = {"alert": "A", "when": when, "severity": "info", "annotations": {"summary": "{value}"}}
    evaluator = Evaluator(load_rules({"version": 1, "groups": [{"name": "g", "rules": [rule]}]}))
    transitions = [
        *evaluator.observe(rows("val_loss", [1.0] * 10, 0)),
        *evaluator.observe(rows("loss", [1.0] * 10, 10)),
        *evaluator.observe(rows("val_loss", [1.0] * 9 + [3.0], 20)),
    ]
    changes = [told for told in transitions if told.reason is not Reason.WORSENED]
    return [(told.state, told.step) for told in changes]


def test_a_window_goes_on_after_rows_without_its_series() -> None:
    assert states_after("val_loss > 2 * mean(val_loss, 16)") == [(AlertState.FIRING, 29)]


def test_a_window_over_steps_takes_the_rows_that_bring_nothing_else() -> None:
    assert states_after("val_loss > 2 and mean(step, 16) < 22") == [(AlertState.FIRING, 29)]


def test_an_open_alert_stays_open_while_its_series_is_away() -> None:
    assert states_after("val_loss > 0") == [(AlertState.FIRING, 0)]
