"""Which series an alert's card draws."""

from typing import Any

import pytest
from tests.server.notify.factories import a_case

from runwatch.layouts import Layer, Layout
from runwatch.rules import Rule, load_rules
from runwatch_server.alerts.records import AlertRecord, Facts
from runwatch_server.page.judged_curves import Curve, curves_of

LAYOUTS = [Layout((Layer("embed"), Layer("head")), ("grad_norm", "nonfinite", "update_ratio"))]
METRICS = ["eval/loss", "grad_norm", "loss", "lr.1", "reward"]


def alert(rule: str, layer: str | None = None, *, worst: str | None = None) -> AlertRecord:
    return a_case(rule=rule, facts=Facts(first_layer=layer, worst_layer=worst)).alert


def rule_of(when: str, scope: str = "run") -> Rule:
    rule = {"alert": "Own", "scope": scope, "when": when}
    document: dict[str, Any] = {
        "version": 1,
        "metrics": ["eval_loss"],
        "groups": [{"name": "ours", "rules": [rule]}],
    }
    return load_rules(document)[0]


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("loss > 3", ["loss"]),
        ("lr_1 > 1 and grad_norm > 2", ["lr.1", "grad_norm"]),
        ("step > 100 and eval_loss > loss", ["eval/loss", "loss"]),
        ("loss > 3 and not alternating > 0", ["loss"]),
    ],
)
def test_a_rule_of_the_run_has_what_it_compares_first(when: str, wanted: list[str]) -> None:
    found = curves_of(alert("Own"), rule_of(when), METRICS, LAYOUTS)

    assert found == [Curve(name) for name in wanted]


def test_a_rule_of_layers_has_the_layer_in_which_it_began() -> None:
    rule = rule_of("grad_norm > 3 and loss > 1", "layer")

    found = curves_of(alert("Own", "head"), rule, METRICS, LAYOUTS)

    assert found == [Curve("grad_norm", "head"), Curve("loss")]


def test_what_names_no_layer_of_the_run_is_no_layer() -> None:
    rule = rule_of("grad_norm > 3", "layer")

    found = curves_of(alert("Own", "the loss of rank 3"), rule, METRICS, LAYOUTS)

    assert found == [Curve("grad_norm")]


def test_a_rule_that_looks_across_layers_has_the_worst_of_them() -> None:
    rule = rule_of("max_layers(update_ratio) > 1")

    assert curves_of(alert("Own", "embed"), rule, METRICS, LAYOUTS) == [
        Curve("update_ratio", "embed")
    ]


def test_what_is_not_finite_has_where_it_began_first() -> None:
    gradients = [Curve("grad_norm", "head"), Curve("nonfinite", "head")]
    began_in_it = alert("NonFinite", "head")
    began_in_the_loss = alert("NonFinite", worst="head")
    without_layers = alert("NonFinite")

    def found(one: AlertRecord) -> list[Curve]:
        return curves_of(one, None, METRICS, LAYOUTS)

    assert found(began_in_it) == [*gradients, Curve("loss")]
    assert found(began_in_the_loss) == [Curve("loss"), *gradients]
    assert found(without_layers) == [Curve("loss"), Curve("grad_norm")]


def test_without_a_series_of_its_own_there_is_the_loss_or_what_there_is() -> None:
    assert curves_of(alert("NoStep"), None, METRICS, LAYOUTS) == [Curve("loss")]
    assert curves_of(alert("NoStep"), None, ["reward"], []) == [Curve("reward")]
    assert curves_of(alert("NoStep"), None, [], []) == []
