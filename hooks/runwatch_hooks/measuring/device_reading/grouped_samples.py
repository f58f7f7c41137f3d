"""Launches the Triton kernels over samples of many tensors: one launch for all of one dtype.

Torch operations need a dozen launches: strided elements are gathered from few tensors at a time,
and their sums need several scans.

Needs Triton, so it is imported only if that is installed.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.absent import absent
from runwatch_hooks.measuring.device_reading import kernels
from runwatch_hooks.measuring.host_memory import to_device
from runwatch_hooks.measuring.sampled_updates import shares_of

_KERNELS: Final[Any] = kernels
"""Any, because type checkers cannot follow Triton's language."""

_BLOCK: Final = 1024
"""Elements in flight per program: the length of most samples."""


class GroupedSamples:
    """Implements `DeviceSamples` for `kernels.SAMPLED_TYPES`. Raises whatever Triton raises."""

    def __init__(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> None:
        device = samples[0].device
        self._samples = samples
        """Keeps the memory alive."""
        rows: dict[torch.dtype, list[tuple[int, ...]]] = {}
        start = 0
        for place, one in enumerate(samples):
            if one.numel():
                row = (one.data_ptr(), one.stride(0), one.numel(), start, place)
                rows.setdefault(one.dtype, []).append(row)
                start += one.numel()
        self._tables = {
            dtype: to_device(torch.tensor(ours, dtype=torch.int64, device="cpu"), device)
            for dtype, ours in rows.items()
        }
        shares = torch.tensor(shares_of(tensors, samples), dtype=torch.float32, device="cpu")
        self._shares = to_device(shares, device)
        self._elements = torch.empty(start, dtype=torch.float32, device=device)
        self._marks = absent(len(samples), device=device)
        self._squares = torch.full_like(self._shares, torch.nan)

    @property
    def kept(self) -> Sequence[Tensor]:
        own = (self._shares, self._elements, self._marks, self._squares)
        return (*self._tables.values(), *own)

    def remember(self) -> None:
        marks = self._marks.view(torch.int32)
        self._launch(_KERNELS.remember_samples, self._elements, marks)

    @property
    def remembered(self) -> Tensor:
        return self._elements

    def recall(self, elements: Tensor) -> None:
        self._elements.copy_(elements)

    def broken(self) -> Tensor:
        return self._marks

    def squares(self) -> Tensor:
        self._launch(_KERNELS.compare_samples, self._elements, self._shares, self._squares)
        return self._squares

    def _launch(self, kernel: Any, *others: Tensor) -> None:
        # Triton launches on the current device.
        with torch.cuda.device_of(self._shares):  # type: ignore[no-untyped-call]
            for dtype, table in self._tables.items():
                element = _KERNELS.ELEMENT_TYPES[dtype]
                kernel[(len(table),)](table, *others, DTYPE=element, BLOCK=_BLOCK)
