"""Stats of what a module returned."""

import math

import numpy as np
import pytest
import torch

from runwatch.nonfinite import is_absent
from runwatch_hooks.detail.activation_sums import NUM_SUMS, joined, stats_of, sums_of


def stats(*tensors: torch.Tensor) -> list[float]:
    """Of one module that was called with these results."""
    total = torch.zeros(NUM_SUMS, dtype=torch.float64)
    for tensor in tensors:
        sums = sums_of(tensor)
        assert sums is not None
        total = joined(total, sums)
    found: list[float] = stats_of(total[None].numpy())[:, 0].tolist()
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_they_are_those_of_torch(dtype: torch.dtype) -> None:
    tensor = torch.rand(3, 400_001, generator=torch.Generator().manual_seed(0)).to(dtype) + 1
    exact = tensor.double()

    assert stats(tensor) == pytest.approx(
        [exact.mean().item(), exact.std(correction=0).item(), exact.abs().max().item(), 0.0, 0.0],
        rel=1e-6,
    )


def test_several_calls_count_as_one_output() -> None:
    assert stats(torch.tensor([1.0, 0.0]), torch.tensor([-3.0, 2.0])) == pytest.approx(
        [0.0, math.sqrt(3.5), 3.0, 0.25, 0.0]
    )


def test_what_is_not_finite_is_counted_and_says_what_it_is() -> None:
    assert stats(torch.tensor([1.0, math.inf, 3.0, -math.inf])) == [2.0, 1.0, math.inf, 0.0, 2.0]
    assert math.isnan(stats(torch.tensor([1.0, math.nan, 3.0, -math.inf]))[2])


def test_of_nothing_finite_the_mean_is_no_number() -> None:
    found = stats(torch.tensor([math.nan]))

    assert math.isnan(found[0])
    assert found[4] == 1.0


def test_a_module_that_was_not_called_is_not_recorded() -> None:
    assert is_absent(stats_of(np.zeros((1, NUM_SUMS)))).all()
