"""Samples come from all over a tensor, whatever its shape and the order of its memory."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.hooks.statistics.one_pass_here import one_pass_here
from torch import Tensor

from runwatch_hooks.statistics.cpu import samples_on_host
from runwatch_hooks.statistics.samples import (
    NUM_SAMPLED,
    OpenSamples,
    SampledUpdates,
    Samples,
    TorchSamples,
    sample,
)
from runwatch_hooks.statistics.spread import spread_stride

Format = Callable[[Tensor], Tensor]


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=torch.channels_last)


def backwards(tensor: Tensor) -> Tensor:
    """A view of memory in which the first dimension is the innermost."""
    dims = tuple(reversed(range(tensor.dim())))
    return tensor.permute(dims).contiguous().permute(dims)


CASES: Final = [
    pytest.param(shape, order, id=f"{'x'.join(map(str, shape))}-{order.__name__}")
    for shape, order in (
        ((512, 256, 1, 1), as_it_is),
        ((512, 256, 1, 1), channels_last),
        ((2048, 512, 1, 1), as_it_is),
        ((128, 96, 3, 3), as_it_is),
        ((128, 96, 3, 3), channels_last),
        ((64, 3, 7, 7), channels_last),
        ((256, 1, 5, 5), channels_last),
        ((16, 16, 4, 4, 4), as_it_is),
        ((1024, 1024), as_it_is),
        ((1024, 1024), backwards),
        ((384, 1152), backwards),
        ((20_000, 64), as_it_is),
        ((64, 20_000), as_it_is),
        ((2, 100_000), as_it_is),
        ((100_000, 2), backwards),
        ((24, 210), as_it_is),
        ((1, 50_000), as_it_is),
        ((50_000, 1, 1), as_it_is),
        ((50_000,), as_it_is),
    )
]


def check_spread(shape: tuple[int, ...], places: NDArray[np.int64]) -> None:
    """As many coordinates of each dimension as there can be, none of the possible ones much more
    often than others."""
    for length, found in zip(shape, np.unravel_index(places, shape), strict=True):
        num_parts = min(length, 16)
        shares = np.bincount(found * num_parts // length, minlength=num_parts) / len(places)
        wide = np.bincount(np.arange(length) * num_parts // length) / length
        assert shares == pytest.approx(wide, rel=0.25), (length, shares)


@pytest.mark.parametrize(("shape", "order"), CASES)
def test_a_sample_is_spread_over_every_dimension(shape: tuple[int, ...], order: Format) -> None:
    numbered = torch.arange(math.prod(shape), dtype=torch.float64).view(shape)
    places = sample(order(numbered)).numpy().astype(np.int64)

    assert 0.4 * NUM_SAMPLED < len(places) <= NUM_SAMPLED
    check_spread(shape, places)


@given(st.lists(st.integers(1, 300), min_size=2, max_size=4).map(tuple))
@example((207, 207, 207, 192))  # takes more than 128 strides
@settings(max_examples=200, deadline=None)
def test_so_it_is_for_any_shape(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    stride = spread_stride(shape, NUM_SAMPLED)
    places = np.arange(0, size, stride)

    assert len(places) <= NUM_SAMPLED
    for at, length in enumerate(shape):
        found = np.unique(places // math.prod(shape[at + 1 :]) % length)
        assert len(found) >= 0.4 * min(length, len(places))


def test_rows_are_met_evenly_though_their_length_is_not_known() -> None:
    """As in a stretch of a flat buffer of ZeRO's."""
    places = np.arange(0, 3_000_001, spread_stride((3_000_001,), NUM_SAMPLED))

    for row in (64, 256, 768, 1024, 3072, 4096):
        shares = np.bincount(places % row * 8 // row, minlength=8) / len(places)
        assert shares == pytest.approx(np.full(8, 1 / 8), rel=0.5)


@pytest.mark.parametrize("way", ["compiled", "numpy", "torch"])
@pytest.mark.parametrize(("shape", "order"), CASES)
def test_an_update_that_leaves_half_of_a_dimension_out_is_measured_rightly(
    shape: tuple[int, ...], order: Format, way: str
) -> None:
    """As where channels are dead: half of them at random, of every dimension in turn."""
    one_pass = one_pass_here() if way == "compiled" else None
    open_samples: OpenSamples[Samples] = (
        TorchSamples if way == "torch" else samples_on_host(one_pass)
    )
    generator = torch.Generator().manual_seed(3)
    for dim, length in enumerate(shape):
        if length == 1:
            continue
        is_alive = torch.rand(length, generator=generator) < 0.5
        is_alive[0], is_alive[-1] = True, False
        view = [1] * len(shape)
        view[dim] = length
        update = torch.randn(shape, generator=generator) * 1e-3 * is_alive.view(view)
        tensor = order(torch.randn(shape, generator=generator))
        updates = SampledUpdates([tensor], open_samples)
        updates.before([0])
        tensor.add_(update)
        found = updates.after()
        assert found is not None

        moved = math.sqrt(found[1].item())
        assert moved == pytest.approx(math.sqrt(torch.sum(update * update).item()), rel=0.2), dim
