"""Numbers as people read them; the page's script is held to the same table (tests/page)."""

import json
import math
from pathlib import Path

import pytest

from runwatch.number_texts import count, counted, number

CASES = json.loads((Path(__file__).parents[1] / "number_cases.json").read_text())


@pytest.mark.parametrize(("value", "text"), CASES["number"])
def test_a_number_has_one_form(value: float, text: str) -> None:
    assert number(float(value)) == text


@pytest.mark.parametrize(("value", "text"), CASES["count"])
def test_a_count_is_grouped(value: int, text: str) -> None:
    assert count(value) == text


def test_what_is_no_finite_number_is_itself() -> None:
    finite = [number(value) for value in (math.nan, math.inf, -math.inf, "NaN", "+Inf", "-Inf")]

    assert finite == ["NaN", "+∞", "−∞"] * 2
    assert number(None) == count(None) == "–"


def test_a_rule_may_ask_for_other_digits() -> None:
    assert number(1234.56789, 6) == "1\u202f234.57"
    assert number(0.0312345, 2) == "0.031"


def test_one_is_not_many() -> None:
    assert [counted(value, "layer") for value in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]
