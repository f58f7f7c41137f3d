"""The measuring of tensors on an accelerator: kernels are queued, and nothing waits for them.

How gradients are read is their reader's matter (`device_reading`). Not all parameters are read
where gradients break, as the host learns of that too late: those whose turn it is not are known by
the elements that `update_ratio` samples, and have the norm NaN where one of these is not finite.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.absent import absent
from runwatch_hooks.measuring.dense import dense_view, num_parts
from runwatch_hooks.measuring.device_reading import (
    GREATEST,
    NUM_NONFINITE,
    DeviceReader,
    norms_of,
)
from runwatch_hooks.measuring.host_memory import divisor_of, to_device
from runwatch_hooks.measuring.marks import Course
from runwatch_hooks.measuring.recent import Recent, bytes_of
from runwatch_hooks.measuring.sampled_updates import ALL_UP_TO, SampledUpdates
from runwatch_hooks.measuring.statistics import NormTurns, deal
from runwatch_hooks.measuring.stats import (
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

_ROOM_BYTES: Final = 8 * 2**20
"""Of places kept on the device. Sets of slots that come back at each step are few, or one for each
parameter where the optimizer runs in the backward pass."""


class DeviceStatistics:
    """The statistics of tensors of one device, gathered there."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        device: torch.device,
        reader: DeviceReader,
        turns: Sequence[int] | None = None,
        *,
        are_parts: bool = False,
    ) -> None:
        """As `CpuStatistics`; `reader` is the one of the device."""
        self._tensors = tensors
        self._are_parts = are_parts
        self._device = device
        self._reader = reader
        self._updates = SampledUpdates(tensors, reader.open_samples)
        self._turns = NormTurns(deal([one.numel() for one in tensors]) if turns is None else turns)
        self._absent = absent(len(STATS), len(tensors), device=device)
        self._stats = self._absent.clone()
        """Of the step; in the place of `update_ratio` the squared length of the update."""
        self._norms = torch.zeros(len(tensors), dtype=torch.float32, device=device)
        limits = [0.5 if num_parts(one) > ALL_UP_TO else math.inf for one in tensors]
        self._sparse_above = to_device(
            torch.tensor(limits, dtype=torch.float32, device="cpu"), device
        )
        """Shares of zeros in a gradient above which a sample may hold no element that moved."""
        self._has_read = False
        """Whether gradients were read in this step."""
        self._course = Course(device)
        self._turn: list[int] | None = None
        """Whose norms are yet to be read in this step."""
        self._marked: set[int] = set()
        """Whose norms in this step are known to be finite, or not, by their samples."""
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
            found[: GREATEST + 1] /= divisor_of(scale, self._device)
        if self._has_read:
            # Of several readings the last counts, but what was bad in any is not hidden.
            before = self._stats[NONFINITE].index_select(0, places)
            found = found.clone()
            found[NUM_NONFINITE] = torch.fmax(before, found[NUM_NONFINITE])
        self._has_read = True
        self._stats[: len(found)].index_copy_(1, places, found)

    @property
    def is_broken(self) -> bool:
        return False  # the numbers are on the device

    def before_step(self, slots: Sequence[int]) -> None:
        self._follow()
        remembered = self._updates.before(slots)
        if remembered is not None:
            places, samples = remembered
            # Of several steps in a row it is the first that the norms are of.
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
        squares = stats[UPDATE_RATIO]
        ratios = squares.sqrt()
        known = squares >= 0.0  # not where there is none
        if not self._are_parts:
            ratios /= self._norms
            known = torch.logical_and(known, self._norms)  # zeros have no size to compare with
            known = known > self._are_missed(stats)
        torch.where(known, ratios, self._absent[UPDATE_RATIO], out=squares)
        return stats

    def _are_missed(self, stats: Tensor) -> Tensor:
        """(T,): whether a step moved a few rows only, as an embedding's, and the sample holds none
        of them. That of a gradient of zeros alone has truly not moved."""
        is_sparse = torch.logical_and(stats[ZERO_FRAC] > self._sparse_above, stats[GRAD_NORM])
        return torch.logical_and(is_sparse, stats[UPDATE_RATIO] == 0.0)

    def _follow(self) -> None:
        self._course.follow(
            lambda: (
                *(self._absent, self._stats, self._norms, self._sparse_above),
                *self._updates.kept,
                *self._indices.values(),
            )
        )

    def _read_norms(self, slots: AbstractSet[int] | None = None) -> None:
        """Of those among these tensors, or of all, whose turn it is and that are still unread."""
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
        """The elements, end to end. None for what cannot be read without waiting, is empty, or
        lies elsewhere or nowhere (its memory was freed): an address that is not this device's, read
        on it, ends the process."""
        if tensor.device != self._device:
            return None
        plain = tensor.layout is torch.strided and tensor.is_contiguous()
        flat = tensor if plain and not tensor.is_complex() else dense_view(tensor)
        if flat is None or not flat.numel():
            return None
        return flat if flat.data_ptr() or flat.is_meta else None
