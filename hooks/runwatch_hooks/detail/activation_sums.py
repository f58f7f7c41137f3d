"""Sums over a module's output, computed on its device, and the stats derived from them."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch.nonfinite import ABSENT_32
from runwatch.series import ACTIVATION_STATS
from runwatch_hooks.statistics.dense import dense_view

STATS: Final = ACTIVATION_STATS
"""Mean and standard deviation are over finite elements only; the greatest magnitude is NaN or
infinite if an element is."""
NUM_ELEMENTS, SUM, SUM_OF_SQUARES, MAX_ABS, NUM_ZEROS, NUM_NONFINITE = range(6)
NUM_SUMS: Final = 6

_PIECE: Final = 2**20
"""Elements at a time: there may be no memory for a copy of a whole activation."""


def sums_of(tensor: Tensor) -> Tensor | None:
    """(NUM_SUMS,) float64 on the tensor's device; None if it has no dense view."""
    flat = dense_view(tensor.resolve_conj().resolve_neg())  # the mean needs the right signs
    if flat is None:
        return None
    total = torch.zeros(NUM_SUMS, dtype=torch.float64, device=flat.device)
    for start in range(0, flat.numel(), _PIECE):
        total = joined(total, _sums_of_piece(flat[start : start + _PIECE]))
    return total


def joined(left: Tensor, right: Tensor) -> Tensor:
    """The sums over two tensors, such as the outputs of two calls of one module."""
    both = left + right
    both[MAX_ABS] = torch.maximum(left[MAX_ABS], right[MAX_ABS])
    return both


def _sums_of_piece(piece: Tensor) -> Tensor:
    numbers = piece if piece.dtype == torch.float64 else piece.float()
    is_finite = numbers.isfinite()
    finite = torch.where(is_finite, numbers, 0.0)
    num_elements = torch.full((), piece.numel(), dtype=torch.float64, device=piece.device)
    return torch.stack(
        [
            num_elements,
            finite.sum(dtype=torch.float64),
            (finite * finite).sum(dtype=torch.float64),
            numbers.abs().max().double(),
            (numbers == 0).sum().double(),
            (~is_finite).sum().double(),
        ]
    )


def stats_of(sums: NDArray[np.float64]) -> NDArray[np.float32]:
    """(len(STATS), M) from sums (M, NUM_SUMS); ABSENT_32 if a module's output was not read."""
    stats = np.full((len(STATS), len(sums)), ABSENT_32, np.float32)
    held = np.flatnonzero(sums[:, NUM_ELEMENTS] > 0)
    found = sums[held]
    num_finite = found[:, NUM_ELEMENTS] - found[:, NUM_NONFINITE]
    with np.errstate(all="ignore"):  # without finite elements the mean is NaN
        mean = found[:, SUM] / num_finite
        variance = np.maximum(found[:, SUM_OF_SQUARES] / num_finite - mean * mean, 0.0)
        stats[:, held] = [
            mean,
            np.sqrt(variance),
            found[:, MAX_ABS],
            found[:, NUM_ZEROS] / found[:, NUM_ELEMENTS],
            found[:, NUM_NONFINITE],
        ]
    return stats
