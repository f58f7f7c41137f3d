"""The level that a chart draws is the one that verdicts are made by."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from runwatch.rules import Evaluator, Rows, Rule, load_rules
from runwatch.rules.thresholds import (
    has_threshold,
    is_level,
    looks_across_layers,
    rows_before,
    rows_of_start,
    threshold,
)
from runwatch.vocabulary import Scope


def rule_of(when: str, **facts: object) -> Rule:
    written = {"alert": "R", "when": when, **facts}
    document = {"version": 1, "groups": [{"name": "g", "rules": [written]}]}
    return load_rules(document)[0]


def rows_of(losses: NDArray[np.float64]) -> Rows:
    steps = np.arange(len(losses))
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=("loss",),
        metrics=losses[:, np.newaxis],
        layer_names=(),
        stat_names=(),
        stats=np.empty((len(losses), 0, 0), np.float32),
    )


def rows_of_layers(norms: NDArray[np.float32]) -> Rows:
    """`norms`: (N, 2), of the layers left and right."""
    steps = np.arange(len(norms))
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=(),
        metrics=np.empty((len(norms), 0)),
        layer_names=("left", "right"),
        stat_names=("grad_norm",),
        stats=norms[:, np.newaxis],
    )


def test_a_constant_is_a_level_at_every_step() -> None:
    rule = rule_of("loss > 9")

    found = threshold(rule, "loss", rows_of(np.ones(3)))

    assert (found.direction, found.levels.tolist()) == ("above", [9.0, 9.0, 9.0])
    assert is_level(rule, "loss")


def test_of_levels_that_must_all_be_passed_the_strictest_counts() -> None:
    rule = rule_of("loss > 2 and loss > 3 * median(loss, 2)", min_history=2)

    found = threshold(rule, "loss", rows_of(np.array([1.0, 1.0, 5.0])))

    assert found.levels.tolist() == [2.0, 2.0, 3.0]
    assert not is_level(rule, "loss")
    assert rows_before(rule) == 4


def test_a_failing_sample_does_not_move_the_level_of_a_clean_baseline() -> None:
    rule = rule_of("loss > 2 * max(loss, 4)", min_history=1, baseline="clean")

    found = threshold(rule, "loss", rows_of(np.array([1.0, 9.0, 9.0, 1.0])))

    assert found.steps.tolist() == [1, 2, 3]
    assert found.levels.tolist() == [2.0, 2.0, 2.0]


def test_the_level_is_passed_where_the_evaluator_fires() -> None:
    rng = np.random.default_rng(0)
    losses = 2 + 0.1 * rng.standard_normal(400)
    losses[[150, 151, 300]] += 4
    rule = rule_of("loss > 1.5 * median(loss, 32)", baseline="clean")

    fired = {
        transition.step
        for transition in Evaluator([rule]).observe(rows_of(losses))
        if transition.rule == "R" and transition.state == "firing"
    }
    found = threshold(rule, "loss", rows_of(losses))
    passed = found.steps[losses[found.steps] > found.levels]

    assert fired == {150, 300}
    assert passed.tolist() == [150, 151, 300]


def test_what_compares_no_level_with_the_series_has_no_threshold() -> None:
    assert not has_threshold(rule_of("robust_z(loss, 16) > 5"), "loss")
    assert not has_threshold(rule_of("loss > 2 or grad_norm > 3"), "loss")
    assert not has_threshold(rule_of("grad_norm > 2", scope="layer"), "grad_norm")
    assert not has_threshold(rule_of("grad_norm > 2"), "grad_norm", Scope.LAYER)
    assert has_threshold(rule_of("loss > 2"), "loss")


def test_a_rule_of_single_layers_has_a_level_for_each() -> None:
    rule = rule_of("grad_norm > 3 * max(grad_norm, 4)", scope="layer", min_history=1)
    norms = np.array([[1, 10], [2, 10], [1, 40], [1, 10]], np.float32)

    left = threshold(rule, "grad_norm", rows_of_layers(norms), "left")
    right = threshold(rule, "grad_norm", rows_of_layers(norms), "right")

    assert has_threshold(rule, "grad_norm", Scope.LAYER)
    assert left.steps.tolist() == [1, 2, 3]
    assert left.levels.tolist() == [3.0, 6.0, 6.0]
    assert right.levels.tolist() == [30.0, 30.0, 120.0]


def test_a_level_may_hang_on_the_other_layers() -> None:
    rule = rule_of("grad_norm > 0.5 * max_layers(grad_norm)", scope="layer")
    norms = np.array([[1, 10], [2, 20]], np.float32)

    found = threshold(rule, "grad_norm", rows_of_layers(norms), "left")

    assert looks_across_layers(rule)
    assert found.levels.tolist() == [5.0, 10.0]


def test_what_remembers_the_beginning_asks_for_its_rows() -> None:
    rule = rule_of("loss > 2 * first(loss, 8) and loss > max(loss, 3)")

    assert (rows_of_start(rule), rows_before(rule)) == (16, 6)


def test_a_level_begins_anew_with_another_objective_as_verdicts_do() -> None:
    rule = rule_of("loss > 2 * median(loss, 8)", min_history=2)
    losses = np.array([1.0] * 10 + [50.0] * 4)
    objective = np.array([1.0] * 10 + [2.0] * 4)
    rows = replace(
        rows_of(losses),
        metric_names=("loss", "objective"),
        metrics=np.column_stack([losses, objective]),
    )

    found = threshold(rule, "loss", rows)

    assert found.steps.tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 12, 13]
    assert found.levels[-2:].tolist() == [100.0, 100.0]
