"""Counts by powers of two: exact, whatever the type, the shape and the scale."""

import math

import pytest
import torch
from torch import Tensor

from runwatch.histograms import (
    ABOVE,
    BELOW,
    FIRST_EXPONENT,
    LOWEST_EXPONENT,
    NONFINITE,
    NUM_BINS,
    ZEROS,
)
from runwatch_hooks.detail.log2_counts import count_log2


def expected(values: list[float]) -> list[int]:
    """One by one, by the exponent that Python finds."""
    counts = [0] * NUM_BINS
    for value in values:
        if not math.isfinite(value):
            place = NONFINITE
        elif value == 0.0:
            place = ZEROS
        else:
            exponent = math.frexp(value)[1] - 1 - LOWEST_EXPONENT
            place = min(max(exponent + FIRST_EXPONENT, BELOW), ABOVE)
        counts[place] += 1
    return counts


def values_of(tensor: Tensor) -> list[float]:
    return [float(value) for value in tensor.double().numpy()]


def counted(tensor: Tensor, scale: Tensor | None = None) -> list[int]:
    counts = count_log2(tensor, scale)
    assert counts is not None
    return [int(count) for count in counts.numpy()]


EDGES = [
    0.0, -0.0, 1.0, -1.0, 2.0, 1.999999, 0.5, 2.0**-40, -(2.0**-41), 2.0**39, 2.0**40, -3e38,
    1e-45, 1e-39, math.inf, -math.inf, math.nan,
]  # fmt: skip


def test_each_edge_falls_where_it_should() -> None:
    assert counted(torch.tensor(EDGES)) == expected(values_of(torch.tensor(EDGES)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_type_is_counted_as_it_is(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(70_001, generator=generator, dtype=torch.float64)
    tensor = (values * torch.exp2(torch.arange(70_001) % 100 - 50.0)).to(dtype)

    assert counted(tensor) == expected(values_of(tensor))


def test_doubles_beyond_float32_are_finite() -> None:
    assert counted(torch.tensor([1e300, 1e-300, 5e-324, math.inf], dtype=torch.float64)) == (
        expected([1e300, 1e-300, 5e-324, math.inf])
    )


def test_a_transposed_an_expanded_and_an_empty_tensor() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)

    assert counted(tensor.T) == counted(tensor)
    assert counted(torch.tensor(3.0).expand(5)) == expected([3.0] * 5)
    assert sum(counted(torch.empty(0))) == 0


def test_what_a_sparse_tensor_lacks_is_zero() -> None:
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 0]]), [[1.0, 3.0], [1.0, 5.0]], (4, 2), check_invariants=True
    )

    assert counted(sparse) == expected([2.0, 8.0] + [0.0] * 6)


def test_a_gradient_that_bears_a_scale_is_divided_by_it() -> None:
    grads = torch.tensor([1024.0, 2048.0, 0.0])

    assert counted(grads, torch.tensor(1024.0)) == expected([1.0, 2.0, 0.0])


def test_complex_numbers_are_counted_as_pairs() -> None:
    assert counted(torch.tensor([1 + 2j, 0j])) == expected([1.0, 2.0, 0.0, 0.0])
