"""Launches the Triton kernels over many tensors at once: one or two launches for all of one dtype.

As in torch's foreach operations, the work is divided into stretches of equal length, and a table
says which tensor each belongs to. Torch passes the table with the launch arguments, 4 KiB of it, so
that many tensors need many launches; here it is stored on the device. What stays the same from step
to step (lengths, stretches, slots) is copied there once. Addresses of gradients change between
steps if gradients are set to None. They are copied again if one has changed, from page-locked
memory that torch's allocator keeps until the copy is done, so nothing waits for it.

Needs Triton, so it is imported only if that is installed.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.statistics import kernels
from runwatch_hooks.statistics.gpu_reading import DeviceSamples
from runwatch_hooks.statistics.readback import (
    Recent,
    absent,
    bytes_of,
    locks_pages,
    stream_of,
    to_device,
)
from runwatch_hooks.statistics.samples import TorchSamples, shares_of

_KERNELS: Final[Any] = kernels
"""Any, because type checkers cannot follow Triton's language."""

_SAMPLE_BLOCK: Final = 1024
"""Elements in flight per program: the length of most samples."""


class GroupedSamples:
    """Implements `DeviceSamples` for `kernels.SAMPLED_TYPES`. Raises whatever Triton raises.

    Torch operations need a dozen launches: strided elements are gathered from few tensors at a
    time, and their sums need several scans.
    """

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
                kernel[(len(table),)](table, *others, DTYPE=element, BLOCK=_SAMPLE_BLOCK)


"""Any, because type checkers cannot follow Triton's language."""

STRETCH: Final = 65_536
"""Elements per program. Gives every multiprocessor a program from some million elements on. This
and the next three are the fastest of those tried on an H200 (docs/figures.md)."""
_BLOCK: Final = 4096
"""Elements per block, which are loaded at once; half as many of float64."""
_STAGES: Final = 3
"""Blocks in flight per program: one is added up, and two are on their way to shared memory, of
which they take 32 KiB."""
_WARPS: Final = 4
_JOINED_AT_ONCE: Final = 1024
_FINISHED_AT_ONCE: Final = 256

_ALIGNMENT: Final = 16
"""Bytes that a thread can load at once, from an address that is a multiple of it."""
_ROOM_BYTES: Final = 64 * 2**20
"""Limit on tables kept on the device, of which the last used stay. Usually one set of tensors
recurs at each step, or one per parameter if optimizers run in the backward pass; together the
tables are about a thousandth of the model. With experts that are idle in turns, few sets recur."""

_Kind = tuple[torch.dtype, bool]
"""(dtype, whether the memory is aligned). Tensors of one kind are read by one launch."""
_Shape = tuple[tuple[_Kind, int], ...]


class GroupedReader:
    """Reads tensors of one device; implements `DeviceReader`. Raises whatever Triton raises."""

    def __init__(self, device: torch.device, room_bytes: int = _ROOM_BYTES) -> None:
        self._device = device
        self._plans: Recent[tuple[int, _Shape], _Plan] = Recent(room_bytes)

    @property
    def num_bytes(self) -> int:
        """Device memory of the kept tables."""
        return self._plans.taken

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        flats = [flat if flat.dtype in _KERNELS.ELEMENT_TYPES else flat.float() for flat in flats]
        addresses = [flat.data_ptr() for flat in flats]
        shape = tuple(
            ((flat.dtype, address % _ALIGNMENT == 0), flat.numel())
            for flat, address in zip(flats, addresses, strict=True)
        )
        # A plan per stream: work queued on another stream may still write to that one's memory.
        key = stream_of(self._device), shape
        plan = self._plans.get(key)
        if plan is None:
            plan = _Plan(shape, self._device)
            self._plans.put(key, plan, plan.num_bytes)
        # Triton launches on the current device.
        with torch.cuda.device_of(flats[0]):  # type: ignore[no-untyped-call]
            return plan.read(addresses)

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        num = norms.numel()
        with torch.cuda.device_of(norms):  # type: ignore[no-untyped-call]
            _launch(
                _KERNELS.finish_ratios,
                -(-num // _FINISHED_AT_ONCE),
                (stats, norms, sparse_above),
                num,
                BLOCK=_FINISHED_AT_ONCE,
            )

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        if all(one.dtype in _KERNELS.SAMPLED_TYPES for one in samples):
            return GroupedSamples(tensors, samples)
        return TorchSamples(tensors, samples)


class _Plan:
    """The launches for tensors of given dtypes and lengths."""

    def __init__(self, shape: Sequence[tuple[_Kind, int]], device: torch.device) -> None:
        places: dict[_Kind, list[int]] = {}
        for place, (kind, _) in enumerate(shape):
            places.setdefault(kind, []).append(place)
        self._found = torch.empty((len(shape), 4), dtype=torch.float32, device=device)
        self._groups = [
            _Group(kind, ours, [shape[place][1] for place in ours], device)
            for kind, ours in places.items()
        ]

    @property
    def num_bytes(self) -> int:
        """Device memory of the plan."""
        return bytes_of([self._found]) + sum(group.num_bytes for group in self._groups)

    def read(self, addresses: Sequence[int]) -> Tensor:
        for group in self._groups:
            group.read(addresses, self._found)
        return self._found.T


class _Group:
    """The tensors of one kind in a plan, and their tables on the device."""

    def __init__(
        self, kind: _Kind, places: Sequence[int], sizes: Sequence[int], device: torch.device
    ) -> None:
        self._dtype, self._is_aligned = kind
        self._members = list(places)
        num_stretches = -(-np.array(sizes, np.int64) // STRETCH)
        firsts = np.concatenate(([0], np.cumsum(num_stretches)))
        owners = np.repeat(np.arange(len(sizes)), num_stretches)
        starts = (np.arange(len(owners)) - firsts[owners]) * STRETCH
        self._num_stretches = len(owners)
        self._places = _table(np.array(places), np.int64, device)
        self._sizes = _table(np.array(sizes), np.int64, device)
        self._firsts = _table(firsts, np.int32, device)
        self._owners = _table(owners, np.int32, device)
        self._starts = _table(starts, np.int64, device)
        self._partials = torch.empty((len(owners), 4), dtype=torch.float64, device=device)
        self._addresses = torch.zeros(len(sizes), dtype=torch.int64, device=device)
        self._last: list[int] = []

    @property
    def num_bytes(self) -> int:
        """Device memory of the tables."""
        lists = (self._places, self._sizes, self._firsts, self._addresses)
        return bytes_of((*lists, self._owners, self._starts, self._partials))

    def read(self, addresses: Sequence[int], found: Tensor) -> None:
        """Queue the reading of the group's tensors; results go into `found` (N, 4)."""
        ours = [addresses[place] for place in self._members]
        if ours != self._last:
            locks = locks_pages(self._addresses.device)
            numbers = torch.tensor(ours, dtype=torch.int64, device="cpu", pin_memory=locks)
            self._addresses.copy_(numbers, non_blocking=True)
            self._last = ours
        _launch(
            _KERNELS.read_stretches,
            self._num_stretches,
            (self._addresses, self._sizes, self._owners, self._starts, self._partials),
            DTYPE=_KERNELS.ELEMENT_TYPES[self._dtype],
            IS_ALIGNED=self._is_aligned,
            STRETCH=STRETCH,
            BLOCK=_BLOCK if self._dtype.itemsize <= 4 else _BLOCK // 2,
            STAGES=_STAGES,
            num_warps=_WARPS,
        )
        _launch(
            _KERNELS.join_stretches,
            len(ours),
            (self._partials, self._firsts, self._sizes, self._places, found),
            BLOCK=_JOINED_AT_ONCE,
        )


def _launch(
    kernel: Any, num_programs: int, tensors: Sequence[Tensor], *numbers: int, **constants: object
) -> None:
    kernel[(num_programs,)](*tensors, *numbers, **constants)


def _table(numbers: NDArray[Any], dtype: type[np.integer[Any]], device: torch.device) -> Tensor:
    return to_device(torch.from_numpy(numbers.astype(dtype)), device)
