"""Reading by torch's own operations, wherever there is a torch.

Two readings of each gradient, its norm and its greatest magnitude; what needs a third is had more
cheaply. `nonfinite` is 1 where the greatest magnitude is not finite, and norm and magnitude then
show NaN or infinity themselves; zeros are counted among 1024 sampled elements.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.device_reading.reader import DeviceSamples
from runwatch_hooks.measuring.sampled_updates import joined, sample
from runwatch_hooks.measuring.torch_samples import TorchSamples

_TORCH: Final[Any] = torch  # whose foreach operations have no public names


class ForeachReader:
    """A few launches, however many tensors there are."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        greatest = norms_of(flats, torch.inf)
        is_bad = (~greatest.isfinite()).float()
        return torch.stack([norms_of(flats, 2.0), greatest, is_bad, _zero_shares(flats)])

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        return TorchSamples(tensors, samples)


def _zero_shares(flats: Sequence[Tensor]) -> Tensor:
    """(T,) float32: of samples."""
    samples = [sample(flat) for flat in flats]
    lengths = [one.numel() for one in samples]
    are_zero = (joined(samples) == 0).float()
    counts = _TORCH._foreach_norm(are_zero.split_with_sizes(lengths), 1.0)
    return torch.stack(_TORCH._foreach_div(counts, lengths))


def norms_of(flats: Sequence[Tensor], order: float) -> Tensor:
    """(T,) float32, in a few launches for each of their types, however many there are.

    Elements are read as they lie, and only sums are wider: copies in float32 would be twice the
    model's memory, and thrice the traffic.
    """
    norms: dict[int, Tensor] = {}
    for places, mates in _by_type(flats):
        # Of float64 sums stay what they are: float32 would make infinities of them.
        dtype = None if mates[0].dtype == torch.float64 else torch.float32
        norms |= zip(places, _TORCH._foreach_norm(mates, order, dtype), strict=True)
    return torch.stack([norms[place].float() for place in range(len(flats))])


def _by_type(flats: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    """With the places that they have among all. Types that have few operations (FP8) are read
    from a copy."""
    by_type: dict[torch.dtype, tuple[list[int], list[Tensor]]] = {}
    for place, flat in enumerate(flats):
        readable = flat.float() if flat.itemsize == 1 else flat
        places, mates = by_type.setdefault(readable.dtype, ([], []))
        places.append(place)
        mates.append(readable)
    return list(by_type.values())
