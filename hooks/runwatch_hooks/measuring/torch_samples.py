"""Samples of tensors of any dtype on any device, by torch operations."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.absent import absent
from runwatch_hooks.measuring.host_memory import to_device
from runwatch_hooks.measuring.sampled_updates import joined, shares_of

_TORCH: Final[Any] = torch  # its foreach operations have no public names


class TorchSamples:
    """Implements `Samples` without a sync: on an accelerator all work is queued."""

    def __init__(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> None:
        """`samples` are one-dimensional views of the tensors, all on one device."""
        device = samples[0].device
        self._samples = samples
        self._lengths = [one.numel() for one in samples]
        self._lengths_there = _put(self._lengths, torch.int64, device)
        self._shares = _put(shares_of(tensors, samples), torch.float32, device)
        self._nan = torch.full((len(samples),), torch.nan, dtype=torch.float32, device=device)
        self._absent = absent(len(samples), device=device)
        self._before: Tensor | None = None
        """(N,) the elements of all samples, concatenated."""

    @property
    def kept(self) -> Sequence[Tensor]:
        tables = (self._lengths_there, self._shares, self._nan, self._absent)
        return tables if self._before is None else (*tables, self._before)

    def remember(self) -> None:
        self._before = joined(self._samples)

    @property
    def remembered(self) -> Tensor | None:
        return self._before

    def recall(self, elements: Tensor) -> None:
        self._before = elements

    def broken(self) -> Tensor:
        """(T,) NaN if a remembered element is non-finite, and 'not recorded' otherwise."""
        if self._before is None:
            return self._absent
        sums = self._sums_within(self._before * 0.0)  # 0 for finite elements, NaN for others
        return torch.where(sums.isnan(), self._nan, self._absent)

    def squares(self) -> Tensor:
        before, self._before = self._before, None
        if before is None:
            return self._nan
        squares = joined(self._samples).sub_(before).square_()
        return self._sums_within(squares).mul_(self._shares)

    def _sums_within(self, together: Tensor) -> Tensor:
        """(T,) sums over each sample's elements, which must not be negative."""
        if together.device.type == "mps":  # it has no segment_reduce
            pieces = together.split_with_sizes(self._lengths)
            return torch.stack(_TORCH._foreach_norm(pieces, 1.0))
        return torch.segment_reduce(together, "sum", lengths=self._lengths_there, unsafe=True)


def _put(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return to_device(torch.tensor(numbers, dtype=dtype, device="cpu"), device)
