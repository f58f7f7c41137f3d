"""Whether a series is back, by its past from before the onset and not by the rule."""

import math

import numpy as np
import pytest

from runwatch.rules import NON_FINITE, Rule, load_rules
from runwatch.rules.evidence import Recorded
from runwatch.rules.expressions import JudgedLevel
from runwatch.rules.outcomes import level_judged, outcome_of

UP = JudgedLevel("loss", is_low_worse=False)
DOWN = JudgedLevel("accuracy", is_low_worse=True)
NOISY = [0.5, 0.54, 0.52, 0.47, 0.53, 0.51, 0.56, 0.52] * 8


def rule(when: str) -> Rule:
    metrics = ["accuracy", "reward_gap"]
    document = {"version": 1, "metrics": metrics, "groups": [
        {"name": "t", "rules": [{"alert": "A", "when": when}]}]}  # fmt: skip
    (loaded,) = load_rules(document)
    return loaded


def outcome(level: JudgedLevel, before: list[float], after: list[float]) -> str:
    """Of an alert that began right after `before`."""
    onset = len(before)
    past = Recorded(np.arange(onset + 1), np.array([*before, after[0]]))
    return outcome_of(level, past, onset, np.array(after))


@pytest.mark.parametrize(
    ("when", "level"),
    [
        ("loss > 5", UP),
        ("robust_z(loss, 64) > 6", UP),
        ("zscore(log10(loss), 64) > 6", UP),
        ("loss / median(loss, 64) > 3", UP),
        ("delta(loss) > 1", UP),
        ("count(loss > 5, 10) >= 8 and lr > 0", UP),
        ("first(loss, 4) > 30", UP),
        ("accuracy < 0.5 * max(accuracy, 64)", DOWN),
        ("accuracy < 0.5", DOWN),
        ("loss < 0.5 * min(loss, 64)", JudgedLevel("loss", is_low_worse=True)),
        ("loss < 0.318", None),
        ("count(loss < prev(loss), 24) >= 23", None),
        ("loss == prev(loss)", None),
        ("abs(loss / first(loss, 8) - 1) < 0.005", None),
        ("std(loss, 64) > 3", None),
        ("isnan(reward_gap)", None),
    ],
)
def test_a_rule_judges_the_level_of_the_series_before_its_windows(
    when: str, level: JudgedLevel | None
) -> None:
    assert level_judged(rule(when)) == level


def test_a_nan_is_over_where_the_loss_is_back_and_silence_has_no_level() -> None:
    assert level_judged(NON_FINITE) == UP
    assert level_judged(Rule(name="Silent")) is None


def test_a_loss_that_settles_five_times_higher_has_not_recovered() -> None:
    assert outcome(UP, NOISY, [8.0, 2.6, 2.55, 2.62, 2.6]) == (
        "loss settled at 2.6, five times its level before"
    )


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([1.05, 1.04, 1.06, 1.05], "twice its level before"),
        ([0.7, 0.71, 0.7, 0.69], "against 0.52 before"),
        ([21.0], "40 times its level before"),
    ],
)
def test_it_says_how_much_higher(after: list[float], words: str) -> None:
    assert outcome(UP, NOISY, after).endswith(words)


@pytest.mark.parametrize("after", [NOISY, NOISY[:1], [0.56], [0.1], [0.55, 0.56, 0.54, 0.55]])
def test_what_is_within_the_noise_of_before_or_better_has_recovered(after: list[float]) -> None:
    assert outcome(UP, NOISY, after) == ""


def test_an_accuracy_that_stays_down_has_not_recovered() -> None:
    before = [0.9, 0.91, 0.92, 0.9, 0.91]

    assert outcome(DOWN, before, [0.31]) == "accuracy settled at 0.31, against 0.91 before"
    assert outcome(DOWN, before, [0.9]) == outcome(DOWN, before, [0.95]) == ""


def test_a_rise_that_the_rule_saw_late_is_no_part_of_the_past() -> None:
    past = [*NOISY, *[2.6] * 40]

    assert outcome(UP, past, [2.6] * 16) == "loss settled at 2.6, five times its level before"


def test_a_log_with_a_row_at_every_hundredth_step_is_measured_in_rows() -> None:
    values = np.array([*NOISY, *[2.6] * 40])
    past = Recorded(100 * np.arange(values.size), values)

    found = outcome_of(UP, past, 100 * (values.size - 1), np.full(16, 2.6))
    assert found == "loss settled at 2.6, five times its level before"


def test_rows_right_before_the_onset_that_had_left_the_past_are_none_of_it() -> None:
    past = [*NOISY, *[2.6] * 6]

    assert outcome(UP, past, [2.6] * 16) == "loss settled at 2.6, five times its level before"


def test_one_spike_in_the_past_does_not_make_a_high_level_usual() -> None:
    past = [*NOISY[:32], 9.0, *NOISY[:32]]

    assert outcome(UP, past, [2.6] * 8) == "loss settled at 2.6, five times its level before"


def test_without_a_past_it_is_measured_against_the_onset() -> None:
    assert outcome(UP, [], [30.0, 29.0, 29.0]) == "loss is still at 29, as at the onset"
    assert outcome(UP, [], [30.0, 4.0, 4.0, 3.9]) == ""


def test_what_is_not_known_is_not_called_worse() -> None:
    assert outcome(UP, NOISY, [math.nan]) == ""
    assert outcome(UP, [], [math.nan, 2.0]) == ""
