"""Reads tensors with torch operations, on any device.

Each gradient is read twice, for its norm and its greatest magnitude. A third reading is avoided:
`nonfinite` is 1 if the greatest magnitude is non-finite (norm and magnitude are then NaN or
infinite themselves), and zeros are counted in a sample of 1024 elements.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.absent import absent
from runwatch_hooks.measuring.device_reading.reader import DeviceSamples
from runwatch_hooks.measuring.sampled_updates import joined, sample
from runwatch_hooks.measuring.stats import GRAD_NORM, UPDATE_RATIO, ZERO_FRAC
from runwatch_hooks.measuring.torch_samples import TorchSamples

_TORCH: Final[Any] = torch  # its foreach operations have no public names


class ForeachReader:
    """Implements `DeviceReader` in a few launches, however many tensors there are."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        greatest = norms_of(flats, torch.inf)
        is_bad = (~greatest.isfinite()).float()
        return torch.stack([norms_of(flats, 2.0), greatest, is_bad, _zero_shares(flats)])

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        squares = stats[UPDATE_RATIO]
        is_sparse = torch.logical_and(stats[ZERO_FRAC] > sparse_above, stats[GRAD_NORM])
        is_missed = torch.logical_and(is_sparse, squares == 0.0)
        known = torch.logical_and(squares >= 0.0, norms)  # false where not recorded
        ratios = squares.sqrt() / norms
        torch.where(known > is_missed, ratios, absent(device=stats.device), out=squares)

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        return TorchSamples(tensors, samples)


def _zero_shares(flats: Sequence[Tensor]) -> Tensor:
    """(T,) float32 share of zeros in a sample of each tensor."""
    samples = [sample(flat) for flat in flats]
    lengths = [one.numel() for one in samples]
    are_zero = (joined(samples) == 0).float()
    counts = _TORCH._foreach_norm(are_zero.split_with_sizes(lengths), 1.0)
    return torch.stack(_TORCH._foreach_div(counts, lengths))


def norms_of(flats: Sequence[Tensor], order: float) -> Tensor:
    """(T,) float32 norms, in a few launches per dtype, however many tensors there are.

    Elements are read in their own dtype, and only sums are wider: float32 copies would take twice
    the model's memory and three times the memory traffic.
    """
    norms: dict[int, Tensor] = {}
    for places, mates in _by_type(flats):
        # Sums of float64 stay float64: in float32 they could become infinite.
        dtype = None if mates[0].dtype == torch.float64 else torch.float32
        norms |= zip(places, _TORCH._foreach_norm(mates, order, dtype), strict=True)
    return torch.stack([norms[place].float() for place in range(len(flats))])


def _by_type(flats: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    """Tensors grouped by dtype, with their indices. Dtypes with few operations (FP8) are copied to
    float32."""
    by_type: dict[torch.dtype, tuple[list[int], list[Tensor]]] = {}
    for place, flat in enumerate(flats):
        readable = flat.float() if flat.itemsize == 1 else flat
        places, mates = by_type.setdefault(readable.dtype, ([], []))
        places.append(place)
        mates.append(readable)
    return list(by_type.values())
