"""Statistics of tensors on an accelerator: kernels are queued, and nothing waits for them.

Gradients are read by a `device_reading` reader. When gradients become non-finite, the host learns
of it too late to read all parameters. Those not read in this step are judged by the elements that
`update_ratio` samples, and their norm is NaN if one of these is non-finite.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import torch
from torch import Tensor

from runwatch_hooks.statistics.cpu import NormTurns, deal
from runwatch_hooks.statistics.dense import in_memory_order, num_parts
from runwatch_hooks.statistics.gpu_reading import NUM_NONFINITE, DeviceReader, norms_of
from runwatch_hooks.statistics.readback import (
    Course,
    Recent,
    absent,
    bytes_of,
    divisor_of,
    to_device,
)
from runwatch_hooks.statistics.samples import ALL_UP_TO, SampledUpdates
from runwatch_hooks.statistics.totals import NONFINITE, NUM_SCALED, PARAM_NORM, STATS, UPDATE_RATIO

_ROOM_BYTES: Final = 8 * 2**20
"""Limit on slot indices kept on the device. The sets of slots that recur at each step are few, or
one per parameter if optimizers run in the backward pass."""


class DeviceStatistics:
    """The statistics of tensors on one device, collected there."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        device: torch.device,
        reader: DeviceReader,
        turns: Sequence[int] | None = None,
        *,
        are_parts: bool = False,
    ) -> None:
        """Like `CpuStatistics`; `reader` is the device's."""
        self._tensors = tensors
        self._are_parts = are_parts
        self._device = device
        self._reader = reader
        self._updates = SampledUpdates(tensors, reader.open_samples)
        self._turns = NormTurns(deal([one.numel() for one in tensors]) if turns is None else turns)
        self._absent = absent(len(STATS), len(tensors), device=device)
        self._stats = self._absent.clone()
        """(S, T) of the current step; for `update_ratio`, the squared norm of the update."""
        self._norms = torch.zeros(len(tensors), dtype=torch.float32, device=device)
        limits = [0.5 if num_parts(one) > ALL_UP_TO else math.inf for one in tensors]
        self._sparse_above = to_device(
            torch.tensor(limits, dtype=torch.float32, device="cpu"), device
        )
        """(T,) share of zeros in a gradient above which a sample may miss all updated elements."""
        self._has_read = False
        """Whether gradients were read in this step."""
        self._course = Course(device)
        self._turn: list[int] | None = None
        """Slots whose norms have yet to be read in this step."""
        self._marked: set[int] = set()
        """Slots already checked in this step for finite values by their samples."""
        self._indices: Recent[tuple[int, ...], Tensor] = Recent(_ROOM_BYTES)

    def read_gradients(
        self, slots: Sequence[int], grads: Sequence[Tensor], scale: Tensor | None
    ) -> None:
        flats = {
            slot: flat
            for slot, grad in zip(slots, grads, strict=True)
            if (flat := self._flat(grad)) is not None
        }
        if not flats:
            return
        self._follow()
        places = self._index(tuple(flats))
        found = self._reader.read(list(flats.values()))
        if scale is not None:
            found = found.clone()
            found[:NUM_SCALED] /= divisor_of(scale, self._device)
        if self._has_read:
            # Of several readings the last counts, but non-finite values of earlier ones stay.
            before = self._stats[NONFINITE].index_select(0, places)
            found = found.clone()
            found[NUM_NONFINITE] = torch.fmax(before, found[NUM_NONFINITE])
        self._has_read = True
        self._stats[: len(found)].index_copy_(1, places, found)

    @property
    def is_broken(self) -> bool:
        return False  # knowing it would be a sync

    def before_step(self, slots: Sequence[int]) -> None:
        self._follow()
        remembered = self._updates.before(slots)
        if remembered is not None:
            places, samples = remembered
            # Of several optimizer steps in one row, the norms are those before the first.
            if self._marked.isdisjoint(places):
                self._stats[PARAM_NORM].index_copy_(0, self._index(tuple(places)), samples.broken())
            self._marked.update(places)
        self._read_norms(frozenset(slots))

    def after_step(self) -> None:
        self._follow()
        compared = self._updates.after()
        if compared is not None:
            slots, squares = compared
            self._stats[UPDATE_RATIO].index_copy_(0, self._index(tuple(slots)), squares.float())

    def take(self, *, weights: bool = True) -> Tensor:
        self._follow()
        if weights:
            self._read_norms()
        self._turn = None
        self._marked.clear()
        self._has_read = False
        stats, self._stats = self._stats, self._absent.clone()
        if self._are_parts:
            squares = stats[UPDATE_RATIO]
            # Compared, because torch's root may change the bits of 'not recorded'.
            torch.where(squares >= 0.0, squares.sqrt(), self._absent[UPDATE_RATIO], out=squares)
        else:
            self._reader.finish_ratios(stats, self._norms, self._sparse_above)
        return stats

    def _follow(self) -> None:
        self._course.follow(
            lambda: (
                *(self._absent, self._stats, self._norms, self._sparse_above),
                *self._updates.kept,
                *self._indices.values(),
            )
        )

    def _read_norms(self, slots: AbstractSet[int] | None = None) -> None:
        """Read the norms that are due in this step: of these slots, or of all."""
        if self._turn is None:
            self._turn = list(self._turns.next())
        due = [slot for slot in self._turn if slots is None or slot in slots]
        self._turn = [slot for slot in self._turn if slots is not None and slot not in slots]
        flats = {
            slot: flat for slot in due if (flat := self._flat(self._tensors[slot])) is not None
        }
        if not flats:
            return
        places = self._index(tuple(flats))
        norms = norms_of(list(flats.values()), 2.0)
        self._norms.index_copy_(0, places, norms)
        self._stats[PARAM_NORM].index_copy_(0, places, norms)

    def _index(self, slots: tuple[int, ...]) -> Tensor:
        found = self._indices.get(slots)
        if found is None:
            indices = torch.tensor(slots, dtype=torch.int64, device="cpu")
            found = to_device(indices, self._device)
            self._indices.put(slots, found, bytes_of([found]))
        return found

    def _flat(self, tensor: Tensor) -> Tensor | None:
        """The elements in the order of memory. None if they cannot be read without a sync, if there
        are none, or if they are on another device or their memory was freed: reading an address
        that is not on this device would kill the process."""
        if tensor.device != self._device:
            return None
        plain = tensor.layout is torch.strided and tensor.is_contiguous()
        flat = tensor if plain and not tensor.is_complex() else in_memory_order(tensor)
        if flat is None or not flat.numel():
            return None
        return flat if flat.data_ptr() or flat.is_meta else None
