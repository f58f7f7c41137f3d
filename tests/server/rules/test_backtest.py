"""What a backtest says people would have had: alerts, pages a day, lead time, and what not."""

import math

from tests.core.rules.test_evaluator import rows_of, rules_of

from runwatch.rules import Rule
from runwatch_server.rules.backtest import Backtest, BacktestRun, summary_of

HIGH = {"alert": "High", "when": "loss > 5", "severity": "critical"}
LOW = {"alert": "Low", "when": "loss > 1", "inhibited_by": [{"rules": ["High"]}]}
TRIAL = {"alert": "Trial", "when": "loss > 1", "shadow": True}


def judged(rules: tuple[Rule, ...], losses: list[float]) -> BacktestRun:
    test = Backtest.of_rules(rules)
    test.observe(rows_of(losses))
    return test.result("run")


def test_what_is_explained_and_what_is_on_trial_is_counted_apart() -> None:
    run = judged(rules_of(HIGH, LOW, TRIAL), [0.0, 9.0])
    summary = summary_of([run])

    assert (summary.alerts, summary.pages, summary.inhibited, summary.shadow) == (1, 1, 1, 1)
    assert [(one.alert, one.inhibited_by, one.shadow) for one in run.alerts] == [
        ("High", None, False),
        ("Low", "High", False),
        ("Trial", None, True),
    ]


def test_what_outlasts_its_explanation_counts_from_when_it_is_told() -> None:
    run = judged(rules_of(HIGH, LOW), [0.0, 9.0, *[2.0] * 80])

    assert [(one.alert, one.firing_step, one.inhibited_by) for one in run.alerts] == [
        ("High", 1, None),
        ("Low", 67, None),
    ]


def test_the_lead_is_from_the_first_alert_to_the_first_number_that_is_none() -> None:
    assert judged(rules_of(HIGH), [0.0, 9.0, 9.0, 9.0, math.nan, 1.0]).lead_steps == 3
    assert judged(rules_of(HIGH), [0.0, 9.0, 0.0, 0.0]).lead_steps == 2
    assert judged(rules_of(HIGH), [0.0, 0.0]).lead_steps is None


def test_pages_a_day_are_over_the_time_of_all_runs() -> None:
    rows = [9.0, *[0.0] * 43_199]
    summary = summary_of([judged(rules_of(HIGH), rows), judged(rules_of(HIGH), rows[1:])])

    assert summary.days is not None
    assert summary.pages_a_day is not None
    assert (round(summary.days, 3), round(summary.pages_a_day, 3)) == (1.0, 1.0)
    assert (summary.runs, summary.runs_with_alerts) == (2, 1)


def test_a_log_without_times_says_nothing_of_days() -> None:
    test = Backtest.of_rules(rules_of(HIGH))
    test.has_times = False
    test.observe(rows_of([9.0]))
    summary = summary_of([test.result("run")])

    assert (summary.pages, summary.days, summary.pages_a_day) == (1, None, None)
