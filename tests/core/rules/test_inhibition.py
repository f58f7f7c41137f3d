"""One incident is one alert: which alerts explain others, for how long, and never a graver one."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tests.core.rules.builtin_pack import pack

from runwatch.alerts import AlertState
from runwatch.errors import RuleError
from runwatch.rules import Evaluator, Rows, Rule, Transition, load_rules
from runwatch.vocabulary import Severity


def rule(
    name: str, when: str, *, by: object = None, severity: str = "warning"
) -> Mapping[str, object]:
    document: dict[str, object] = {"alert": name, "when": when, "severity": severity}
    return document if by is None else {**document, "inhibited_by": by}


def rules_of(*rules: Mapping[str, object]) -> tuple[Rule, ...]:
    return load_rules({"version": 1, "groups": [{"name": "tests", "rules": list(rules)}]})


def judged(rules: tuple[Rule, ...], losses: list[float]) -> list[Transition]:
    return Evaluator(rules).observe(rows_of(losses))


def rows_of(losses: list[float], *, segment: int = 0, first_step: int = 0) -> Rows:
    num = len(losses)
    return Rows(
        steps=np.arange(first_step, first_step + num, dtype=np.int64),
        times=np.arange(first_step, first_step + num, dtype=np.float64),
        metric_names=("loss",),
        metrics=np.array(losses).reshape(-1, 1),
        layer_names=(),
        stat_names=(),
        stats=np.empty((num, 0, 0), np.float32),
        segment=segment,
    )


def told(transitions: list[Transition], name: str) -> list[tuple[int, str, str | None]]:
    return [
        (one.step, one.reason, one.inhibited_by)
        for one in transitions
        if one.rule == name and one.state is AlertState.FIRING
    ]


LOW_BY_HIGH = rules_of(
    rule("High", "loss > 5"),
    rule("Low", "loss > 1", by=[{"rules": ["High"], "within": {"steps": 3}}]),
)


def test_what_another_alert_explains_is_inhibited_from_its_first_step() -> None:
    assert told(judged(LOW_BY_HIGH, [0.0, 9.0, 9.0]), "Low") == [(1, "held", "High")]


def test_an_alert_that_came_first_is_folded_under_the_one_that_explains_it() -> None:
    transitions = judged(LOW_BY_HIGH, [0.0, 2.0, 2.0, 9.0])

    assert told(transitions, "Low") == [(1, "held", None), (3, "inhibited", "High")]


def test_an_alert_that_began_long_before_is_no_consequence() -> None:
    transitions = judged(LOW_BY_HIGH, [2.0, 2.0, 2.0, 2.0, 9.0])

    assert told(transitions, "Low") == [(0, "held", None), (4, "worsened", None)]


def test_what_outlasts_its_explanation_is_released_after_the_window() -> None:
    transitions = judged(LOW_BY_HIGH, [0.0, 9.0, 2.0, 2.0, 2.0, 2.0, 2.0])

    assert told(transitions, "Low") == [(1, "held", "High"), (6, "released", None)]


def test_the_explanation_of_one_that_is_over_lasts_as_long_as_its_window() -> None:
    transitions = judged(LOW_BY_HIGH, [9.0, 0.0, 0.0, 0.0, 2.0, 0.0, 2.0])

    assert told(transitions, "Low") == [(0, "held", "High"), (4, "held", "High"), (6, "held", None)]


def test_a_page_is_never_silenced_by_a_warning() -> None:
    rules = rules_of(
        rule("High", "loss > 5"),
        rule("Low", "loss > 1", by=[{"rules": ["High"]}], severity="critical"),
    )

    assert told(judged(rules, [9.0]), "Low") == [(0, "held", None)]


def test_of_two_rules_that_explain_each_other_one_is_told() -> None:
    rules = rules_of(
        rule("One", "loss > 1", by=[{"rules": ["Two"]}]),
        rule("Two", "loss > 1", by=[{"rules": ["One"]}]),
    )
    transitions = judged(rules, [9.0])

    assert told(transitions, "One") == [(0, "held", "Two")]
    assert told(transitions, "Two") == [(0, "held", None)]


def test_of_two_rules_that_explain_each_other_the_first_to_fire_is_told() -> None:
    rules = rules_of(
        rule("One", "loss > 1", by=[{"rules": ["Two"]}]),
        rule("Two", "loss > 5", by=[{"rules": ["One"]}]),
    )
    transitions = judged(rules, [2.0, 9.0, 2.0, 9.0])

    assert told(transitions, "One") == [(0, "held", None), (1, "worsened", None)]
    assert told(transitions, "Two") == [(1, "held", "One"), (3, "held", "One")]


def test_what_explained_both_is_over_and_one_of_two_that_explain_each_other_is_told() -> None:
    rules = rules_of(
        rule("Root", "loss > 5"),
        rule("One", "loss > 1", by=[{"rules": ["Root", "Two"], "within": {"steps": 2}}]),
        rule("Two", "loss > 1", by=[{"rules": ["Root", "One"], "within": {"steps": 2}}]),
    )
    transitions = judged(rules, [0.0, 9.0, 2.0, 2.0, 2.0, 2.0, 2.0])

    assert told(transitions, "One") == [(1, "held", "Root"), (5, "inhibited", "Two")]
    assert told(transitions, "Two") == [(1, "held", "Root"), (5, "released", None)]


PAGES = rules_of(
    rule("High", "loss > 5", severity="critical"),
    rule("Low", "loss > 1", by=[{"rules": ["High"]}], severity="critical"),
)


def ends(transitions: list[Transition], name: str) -> list[tuple[int, str]]:
    return [
        (one.step, one.reason)
        for one in transitions
        if one.rule == name and one.state is AlertState.RESOLVED
    ]


def test_a_page_is_not_over_while_another_that_it_explained_goes_on() -> None:
    transitions = judged(PAGES, [0.0, 9.0, *[2.0] * 100, 0.0, 0.0])

    assert told(transitions, "Low") == [(1, "held", "High"), (67, "released", None)]
    assert ends(transitions, "Low") == [(102, "recovered")]
    assert ends(transitions, "High") == [(102, "recovered")]


def test_a_page_is_not_over_while_another_that_it_explained_is_to_come() -> None:
    low = rule("Low", "loss > 1", by=[{"rules": ["High"]}], severity="critical")
    rules = rules_of(rule("High", "loss > 5", severity="critical"), {**low, "for": {"steps": 3}})

    back = judged(rules, [0.0, 9.0, 2.0, 0.0])
    assert ends(back, "High") == [(3, "recovered")]
    up = judged(rules, [0.0, 9.0, *[2.0] * 100, 0.0])
    assert told(up, "Low") == [(4, "held", "High"), (67, "released", None)]
    assert ends(up, "High") == [(102, "recovered")]


def test_a_page_that_comes_again_while_its_end_waits_is_another() -> None:
    transitions = judged(PAGES, [0.0, 9.0, 2.0, 9.0, 2.0])

    assert [step for step, _, _ in told(transitions, "High")] == [1, 3]
    assert ends(transitions, "High") == [(3, "recovered")]


def test_an_end_that_waits_is_kept_when_the_evaluator_is_saved() -> None:
    evaluator = Evaluator(PAGES)
    evaluator.observe(rows_of([0.0, 9.0, 2.0, 2.0]))
    restored = Evaluator.restore(PAGES, evaluator.state())

    assert ends(restored.observe(rows_of([2.0, 0.0], first_step=4)), "High") == [(5, "recovered")]


def test_an_end_that_waits_is_told_once_what_went_on_is_no_rule_any_more() -> None:
    evaluator = Evaluator(PAGES)
    evaluator.observe(rows_of([0.0, 9.0, 2.0, 2.0]))
    restored = Evaluator.restore(PAGES[:1], evaluator.state())

    assert ends(restored.observe(rows_of([2.0], first_step=4)), "High") == [(4, "recovered")]


def test_an_end_that_waits_when_the_attempt_ends_is_no_recovery() -> None:
    evaluator = Evaluator(PAGES)
    evaluator.observe(rows_of([0.0, 9.0, 2.0, 2.0]))
    transitions = evaluator.observe(replace(rows_of([0.0], first_step=4), attempt=2))

    assert ends(transitions, "High") == [(4, "ended")]


def test_a_rule_on_trial_explains_nothing() -> None:
    high = {**rule("High", "loss > 5"), "shadow": True}
    rules = rules_of(high, rule("Low", "loss > 1", by=[{"rules": ["High"]}]))

    assert told(judged(rules, [9.0]), "Low") == [(0, "held", None)]


def test_after_a_rollback_an_old_explanation_counts_from_where_the_run_goes_on() -> None:
    evaluator = Evaluator(LOW_BY_HIGH)
    evaluator.observe(rows_of([9.0, 9.0, 0.0], first_step=100))
    transitions = evaluator.observe(rows_of([2.0] * 6, first_step=90, segment=1))

    assert told(transitions, "Low") == [(90, "held", None)]


def test_a_layer_that_the_other_alert_does_not_name_is_told_of() -> None:
    layered = [
        {**rule("High", "grad_norm > 5"), "scope": "layer"},
        {
            **rule("Low", "grad_norm > 1", by=[{"rules": ["High"], "scope": "layer"}]),
            "scope": "layer",
        },
    ]
    rows = Rows(
        steps=np.arange(2, dtype=np.int64),
        times=np.arange(2, dtype=np.float64),
        metric_names=(),
        metrics=np.empty((2, 0)),
        layer_names=("a", "b"),
        stat_names=("grad_norm",),
        stats=np.array([[[0.0, 0.0]], [[9.0, 2.0]]], np.float32),
    )

    assert told(Evaluator(rules_of(*layered)).observe(rows), "Low") == [(1, "held", None)]


def test_a_rule_cannot_name_itself_nor_a_rank() -> None:
    with pytest.raises(RuleError) as caught:
        rules_of(rule("One", "loss > 1", by=[{"rules": ["One"], "scope": "rank"}]))

    faults = [str(fault) for fault in caught.value.faults]
    assert len(faults) == 2
    assert "inhibited_by[0].rules[0]" in faults[0]
    assert "found rank, wanted run or layer" in faults[1]


def test_of_the_built_in_rules_a_nan_brings_one_alert() -> None:
    losses = [2.0 - 0.001 * step + 0.01 * (step % 3) for step in range(300)]
    transitions = judged(pack(), [*losses, 40.0, math.nan, math.nan, *[80.0] * 60])
    firing = [one for one in transitions if one.state is AlertState.FIRING]

    assert len({one.rule for one in firing}) >= 4
    assert {one.rule for one in firing if one.step >= 301 and one.inhibited_by is None} == {
        "NonFinite"
    }


def test_of_the_built_in_rules_a_loss_that_leaps_and_goes_on_rising_brings_one_page() -> None:
    rng = np.random.default_rng(0)
    healthy = 0.3 + 0.7 * 0.5 ** (np.arange(450) / 60) + rng.normal(0.0, 0.01, 450)
    ill = 0.9 - 0.5 * 0.5 ** (np.arange(400) / 80) + rng.normal(0.0, 0.01, 400)
    transitions = judged(pack(), [*healthy.tolist(), *ill.tolist()])
    paged = {
        one.rule: one.inhibited_by
        for one in transitions
        if one.state is AlertState.FIRING and one.severity is Severity.CRITICAL
    }

    assert paged == {
        "LossSpikeUnrecovered": None,
        "LossDivergence": "LossSpikeUnrecovered",
    }
