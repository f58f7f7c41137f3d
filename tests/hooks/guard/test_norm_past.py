"""What of a norm's past makes the next one an outlier."""

import json
import math
from collections.abc import Iterable

import pytest
import torch

from runwatch_hooks.guard.norm_past import MOST_GUARDED, WARM_UP, WINDOW, NormPast
from runwatch_hooks.guard.outliers import norm_over

FINITE = torch.tensor(0.0)
BAD = torch.tensor(1.0)


def judge(past: NormPast, norm: float, is_bad: torch.Tensor = FINITE) -> bool:
    return bool(past.judge(torch.tensor(norm), is_bad).is_outlier)


def learned(norms: Iterable[float] | None = None) -> NormPast:
    """A past of 64 norms; unless others are given, of some that lie around 1."""
    past = NormPast()
    for norm in norms or (1.0 + 0.1 * math.sin(step) for step in range(WARM_UP)):
        assert not judge(past, norm)
    return past


def test_a_norm_far_above_its_past_is_outside_and_others_are_not() -> None:
    past = learned()

    assert [judge(past, norm) for norm in (9.0, 11.0, 0.01, 1.0)] == [False, True, False, False]


def test_the_first_norms_are_not_judged() -> None:
    past = learned(1.0 for _ in range(WARM_UP - 1))

    assert not judge(past, 1000.0)
    assert judge(past, 1000.0)


def test_where_norms_scatter_widely_ten_times_the_median_is_nothing() -> None:
    past = learned(math.exp(math.sin(step)) for step in range(WARM_UP))

    assert [judge(past, norm) for norm in (50.0, 1e6)] == [False, True]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_step_that_is_bad_already_is_no_outlier_and_uses_up_nothing(norm: float) -> None:
    past = learned()
    found = [judge(past, norm, BAD) for _ in range(3 * MOST_GUARDED)]

    assert not any(found)
    assert judge(past, 100.0)


def test_a_norm_that_overflowed_though_all_was_finite_is_outside() -> None:
    assert judge(learned(), math.inf)


def test_a_norm_of_zero_says_nothing() -> None:
    past = learned()

    assert not judge(past, 0.0)
    assert judge(past, 100.0)


def test_a_lasting_level_is_accepted_after_eight_steps_and_learned() -> None:
    past = learned()
    verdicts = [past.judge(torch.tensor(100.0), FINITE) for _ in range(MOST_GUARDED + WARM_UP)]

    assert sum(float(one.is_outlier) for one in verdicts) == MOST_GUARDED
    assert [bool(one.has_relearned) for one in verdicts].index(True) == MOST_GUARDED
    assert sum(float(one.has_relearned) for one in verdicts) == 1
    assert not judge(past, 100.0)
    assert judge(past, 10_000.0)


def test_what_comes_back_again_and_again_is_let_through_for_the_most_part() -> None:
    past = learned()
    found = [judge(past, 100.0 if step % 3 == 0 else 1.0) for step in range(3 * 300)]

    assert 0 < sum(found) < 300 * 0.5


def test_old_outliers_are_forgotten() -> None:
    past = learned()
    for _ in range(3):
        assert [judge(past, 100.0) for _ in range(MOST_GUARDED)] == [True] * MOST_GUARDED
        assert not any(judge(past, 1.0) for _ in range(WINDOW))


def test_what_is_saved_is_loaded_also_by_way_of_json() -> None:
    past, other = learned(), NormPast()
    judge(past, 100.0)
    state = past.state_dict()
    levels = state["levels"]
    assert isinstance(levels, torch.Tensor)
    other.load_state_dict(json.loads(json.dumps({**state, "levels": levels.tolist()})))
    found = [(judge(past, norm), judge(other, norm)) for norm in [100.0] * 9 + [1.0]]

    assert all(mine == theirs for mine, theirs in found)
    assert [mine for mine, _ in found] == [True] * 7 + [False] * 3


def test_what_is_saved_in_strict_json_is_loaded() -> None:
    past, other = learned(), NormPast()
    judge(past, 100.0)
    other.load_state_dict(json.loads(json.dumps(past.plain_state(), allow_nan=False)))
    found = [(judge(past, norm), judge(other, norm)) for norm in [100.0] * 9 + [1.0]]

    assert all(mine == theirs for mine, theirs in found)
    assert [mine for mine, _ in found] == [True] * 7 + [False] * 3


def test_infinities_that_another_program_made_null_are_yet_to_come() -> None:
    past, other = learned(), NormPast()
    levels = past.plain_state()["levels"]
    other.load_state_dict({"num_judged": 65, "levels": levels})

    assert judge(other, 100.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"levels": [0.0] * 5}, "levels: found 5, wanted 128"),
        ({"levels": ["one"] * WINDOW}, "Expected `float | null`, got `str`"),
        ({"levels": None}, "Expected `array`, got `null`"),
        ({"guarded": [WINDOW]}, r"Expected `int` < 128|Expected `int` <= 127"),
        ({"num_judged": "many"}, "Expected `int`, got `str`"),
    ],
)
def test_a_past_that_was_cut_or_written_over_is_refused(
    change: dict[str, object], named: str
) -> None:
    past = learned()
    state = past.plain_state()
    with pytest.raises(ValueError, match=named):
        past.load_state_dict({**state, **change})

    assert past.plain_state() == state


def test_a_norm_over_norms_stays_within_the_range_of_float32() -> None:
    assert norm_over(torch.tensor([3e30, 4e30])).item() == pytest.approx(5e30)
    assert norm_over(torch.tensor([3e-30, 4e-30])).item() == pytest.approx(5e-30)
    assert norm_over(torch.tensor([0.0])).item() == 0.0
    assert norm_over(torch.tensor([math.inf, 1.0])).item() == math.inf
    assert math.isnan(norm_over(torch.tensor([math.nan, 1.0])).item())
