"""Sums over steps keep the spike, count the NaN, and come back from their tile."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_32
from runwatch_server.telemetry.buckets import (
    TILE_LAYERS,
    Buckets,
    decode_grid,
    decode_tile,
    encode_tile,
    from_stretch,
    from_values,
    regroup,
    summarise,
)

VALUES = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 200), st.integers(1, 3)),
    elements=st.one_of(
        st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf])
    ),
)


def test_a_spike_a_nan_and_a_gap_are_told_apart() -> None:
    values = np.array([[1.0], [99.0], [math.nan], [ABSENT_32], [math.inf], [2.0]], np.float32)

    buckets = summarise(64, values)

    assert (buckets.low[0, 0], buckets.high[0, 0], buckets.mean[0, 0]) == (1.0, 99.0, 34.0)
    assert (buckets.count[0, 0], buckets.nonfinite[0, 0]) == (3, 2)


def test_a_bucket_without_a_number_has_no_mean() -> None:
    buckets = summarise(0, np.full((4, 1), math.nan, np.float32))

    assert math.isnan(buckets.mean[0, 0])
    assert (buckets.count[0, 0], buckets.nonfinite[0, 0]) == (0, 4)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([1.7e308] * 3, 1.7e308),
        ([1.7e308, 1.7e308, -1.7e308, -1.7e308], 0.0),
        ([-1.7e308, math.nan, -1.7e308], -1.7e308),
    ],
)
def test_the_mean_of_finite_values_is_finite(values: list[float], mean: float) -> None:
    steps = np.arange(len(values), dtype=np.int64)

    buckets = regroup([from_values(steps, np.array(values)[:, np.newaxis])], 64, 1)

    assert buckets.low[0, 0] <= buckets.mean[0, 0] <= buckets.high[0, 0]
    assert_allclose(buckets.mean[0, 0], mean, atol=1e293)


@given(VALUES)
def test_summing_up_in_two_stages_is_summing_up_in_one(values: NDArray[np.float32]) -> None:
    steps = np.arange(len(values), dtype=np.int64)
    single = from_values(steps, values)

    at_once = regroup([single], 64, values.shape[1])
    staged = regroup([regroup([single], 8, values.shape[1])], 64, values.shape[1])

    for name in ("steps", "low", "high", "count", "nonfinite"):
        assert_array_equal(getattr(at_once, name), getattr(staged, name))
    assert_allclose(at_once.mean, staged.mean, rtol=1e-9, atol=1e-6)


@given(VALUES)
def test_summarise_says_what_regroup_says(values: NDArray[np.float32]) -> None:
    steps = np.zeros(len(values), np.int64)

    one, other = summarise(0, values), regroup([from_values(steps, values)], 64, values.shape[1])

    for name in ("low", "high", "count", "nonfinite"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-3)


@given(VALUES, st.integers(0, 70))
def test_a_stretch_gives_the_buckets_of_its_values(
    values: NDArray[np.float32], first_step: int
) -> None:
    steps = first_step + np.arange(len(values), dtype=np.int64)

    one = regroup(from_stretch(steps, values, 32), 32, values.shape[1])
    other = regroup([from_values(steps, values)], 32, values.shape[1])

    for name in ("steps", "low", "high", "count", "nonfinite"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-3)


def tile() -> Buckets:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, TILE_LAYERS)).astype(np.float32)
    values[7, 3] = math.nan
    return regroup([from_values(1024 + np.arange(300), values)], 64, TILE_LAYERS)


def test_a_tile_comes_back_and_its_empty_buckets_are_empty() -> None:
    data = encode_tile(tile(), first_step=1024, level=64, is_metric=False)

    found = decode_tile(data, first_step=1024, level=64, is_metric=False)

    assert_array_equal(found.steps, 1024 + 64 * np.arange(16))
    assert_array_equal(found.high[:5], tile().high)
    assert_array_equal(found.nonfinite[:5], tile().nonfinite)
    assert not found.count[5:].any()


def test_one_column_of_a_tile_is_that_column() -> None:
    data = encode_tile(tile(), first_step=1024, level=64, is_metric=False)

    one = decode_tile(data, first_step=1024, level=64, is_metric=False, column=3)

    assert_array_equal(one.low[:5], tile().low[:, 3:4])
    assert one.nonfinite[0, 0] == 1


def test_tiles_of_layers_come_back_side_by_side_and_what_has_no_tile_is_empty() -> None:
    data = encode_tile(tile(), first_step=1024, level=64, is_metric=False)
    alone = decode_tile(data, first_step=1024, level=64, is_metric=False)

    grid = decode_grid({(1024, 1): data, (2048, 0): data}, level=64, num_columns=2 * TILE_LAYERS)

    assert_array_equal(grid.steps, 1024 + 64 * np.arange(32))
    assert_array_equal(grid.high[:16, TILE_LAYERS:], alone.high)
    assert_array_equal(grid.nonfinite[16:, :TILE_LAYERS], alone.nonfinite)
    assert np.isnan(grid.mean[:16, :TILE_LAYERS]).all()
    assert not grid.count[16:, TILE_LAYERS:].any()


def test_pieces_without_a_step_make_no_bucket() -> None:
    nothing = from_values(np.empty(0, np.int64), np.empty((0, 2)))
    one = from_values(np.array([7]), np.array([[1.0, 2.0]]))

    assert regroup([nothing, nothing], 1, 2).steps.tolist() == []
    assert regroup([nothing, one], 4, 2).steps.tolist() == [4]
