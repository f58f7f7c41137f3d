"""The tests that a rule's author writes, and what they say when they fail."""

import numpy as np
import pytest

from runwatch.errors import RuleError
from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.rules import load_rules
from runwatch.rules.rule_tests import run_rule_tests
from runwatch.rules.series_notation import expand

RULES = load_rules(
    {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "High", "when": "loss > 3"}]}]}
)


def run(expect: list[object], **fields: object) -> tuple[str, ...]:
    test = {"name": "t", "series": {"loss": "1x5 9x2"}, "expect": expect, **fields}
    (result,) = run_rule_tests({"tests": [test]}, RULES)
    return result.failures


def test_a_test_that_holds_says_nothing() -> None:
    assert run([{"step": 4, "alerts": []}, {"step": 5, "alerts": [{"rule": "High"}]}]) == ()


def test_a_test_that_fails_says_what_was_found_and_wanted() -> None:
    assert run([{"step": 4, "alerts": [{"rule": "High", "state": "firing"}]}], fired=[]) == (
        "step 4:\n  High: found nothing, wanted firing",
        "fired: found ['High'], wanted []",
    )


def test_a_bad_test_is_refused_with_all_its_faults() -> None:
    bad: dict[str, object] = {"name": "t", "series": {"loss": 0x300, "lr": "1y5"}, "expcet": 1}

    with pytest.raises(RuleError) as caught:
        run_rule_tests({"tests": [bad]}, RULES)

    assert [fault.place for fault in caught.value.faults] == [
        "tests[0].series.loss",
        "tests[0].series.lr",
        "tests[0].expcet",
    ]


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("1x3 50", [1, 1, 1, 50]),
        ("2-0.5x3", [2, 1.5, 1]),
        ("-1+1e-1x2", [-1, -0.9]),
        ("inf -infx2", [float("inf"), float("-inf"), float("-inf")]),
        ("", []),
    ],
)
def test_a_short_series_is_expanded(text: str, samples: list[float]) -> None:
    assert expand(text) == samples


def test_an_underscore_is_not_recorded_and_nan_is_a_value() -> None:
    assert is_absent(np.array(expand("_x2 nan 1"))).tolist() == [True, True, False, False]
    assert is_absent(np.array([float(ABSENT_64)])).all()


@pytest.mark.parametrize("text", ["1x", "x3", "1x9999999", "1x60000 1x60000", "__import__", "1,2"])
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        expand(text)
