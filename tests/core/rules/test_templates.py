"""Annotations show what is in the set, and nothing behind it."""

import math

import pytest

from runwatch.rules.templates import Facts, Template, faults_of

FACTS: Facts = {"value": 1234.5678, "step": 7, "worst_layer": "head", "num_layers": 2}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("grad_norm {value:.3g} in {num_layers}", "grad_norm 1\u202f235 in 2"),
        ("{{literally}} {step:4d}|{worst_layer:>6}", "{literally}    7|  head"),
        ("", ""),
    ],
)
def test_a_template_is_filled_in(text: str, filled: str) -> None:
    assert faults_of(text, "summary") == []
    assert Template(text).render(FACTS) == filled


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("see {value.__class__}", 5),
        ("{value[0]}", 1),
        ("{0}", 1),
        ("{}", 1),
        ("{secret}", 1),
        ("{value!r}", 1),
        ("{value:{step}}", 1),
        ("{value:999999999d}", 1),
        ("{value:d}", 1),
        ("{step:.3f}", 1),
        ("{value", None),
        ("value}", None),
        ("x" * 5000, None),
    ],
)
def test_what_reaches_further_is_refused(text: str, column: int | None) -> None:
    (fault,) = faults_of(text, "summary")

    assert fault.column == column


@pytest.mark.parametrize("text", ["{secret}", "{value:d}", "{value", "{value.real}", "{}"])
def test_a_broken_template_never_blocks_an_alert(text: str) -> None:
    assert Template(text).render(FACTS).startswith(text)


def test_a_value_that_is_not_finite_is_shown_as_itself() -> None:
    assert Template("{value:.3g}").render({"value": math.nan}) == "NaN"
