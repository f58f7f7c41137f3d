"""NaN, infinity and 'not recorded' stay three different things."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.nonfinite import (
    ABSENT_32,
    ABSENT_64,
    from_json,
    is_absent,
    to_json,
    to_json_list,
)


@given(st.floats())
def test_a_value_survives_json(value: float) -> None:
    arrived = from_json(to_json(value))

    assert arrived == value or (math.isnan(arrived) and math.isnan(value))


def test_a_list_names_each_kind() -> None:
    values = np.array([1.5, np.nan, np.inf, -np.inf, ABSENT_64])

    assert to_json_list(values) == [1.5, "NaN", "+Inf", "-Inf", None]


def test_null_is_not_recorded() -> None:
    assert is_absent(np.array([from_json(None)])).all()


def test_a_computed_nan_is_recorded() -> None:
    with np.errstate(invalid="ignore"):
        computed = np.array([np.inf]) - np.array([np.inf])

    assert not is_absent(computed).any()


def test_not_recorded_stays_so_when_widened_and_narrowed() -> None:
    narrow = np.array([ABSENT_32], np.float32)
    wide = narrow.astype(np.float64)

    assert is_absent(wide).all()
    assert is_absent(wide.astype(np.float32)).all()


@pytest.mark.parametrize("text", ["nan", "Infinity", "", True, [1]])
def test_what_is_no_number_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="wanted a number"):
        from_json(text)
