"""The statistics of all layers of a run, on all devices that hold them."""

from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.layouts import Layout
from runwatch_hooks.detail import Detail
from runwatch_hooks.faults import Faults
from runwatch_hooks.ranks.shards import gradient_of, is_partial, is_partitioned, local_of
from runwatch_hooks.statistics.cpu import CpuStatistics, LayerStatistics
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_reading import GradientsOnDevice
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.statistics.totals import STATS
from runwatch_hooks.step.layers import KnownOptimizer, LayerTable
from runwatch_hooks.step.row import Sharing

_LOOKED_THROUGH_EVERY: Final = 32
"""Steps between two comparisons of the modules' parameters with those being measured: walking all
modules takes longer than everything else that is checked in a step."""
_FEW: Final = 8
"""If fewer than one in this many gradients is asked for, their slots are looked up in the last
index instead of building a new one."""
_NAMED: Final = 8
"""Replaced parameters that are reported by name."""


class ModelStatistics:
    """The layers' statistics in the current step. A slot is a layer's index in the layout."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        faults: Faults,
        rank: int = 0,
        detail: Detail | None = None,
    ) -> None:
        """`detail` measures histograms, at the steps where they were asked for."""
        self._faults = faults
        self._detail = detail
        self._readers: dict[torch.device, GradientsOnDevice] = {}
        known = [KnownOptimizer(one) for one in optimizers]
        self._table = LayerTable(modules, known, STATS, rank)
        self._unattached: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        """Optimizers not given to `attach` -> how many of their tensors are not watched."""
        self._owners: dict[int, int] = {}
        """Gradient's id -> slot, as of the last time that all tensors were indexed."""
        self._num_refreshes = 0
        self._is_doubtful = False
        self._has_partial = False
        self._has_told_sharded = False
        self._replaced: set[str] = set()
        self._num_left_out = 0
        self._num_hollow = 0
        self._notices: list[str] = []
        self._changes: list[str] = []
        self._open()

    @property
    def layout(self) -> Layout:
        return self._table.layout

    @property
    def sharing(self) -> Sharing | None:
        """How the layers are split over ranks; None if every tensor is whole on this rank."""
        return self._table.sharing

    @property
    def named(self) -> Sequence[NamedTensor]:
        """All trained tensors, in the same order on every rank."""
        return self._table.named

    def refresh(self, optimizers: Sequence[KnownOptimizer]) -> None:
        """Rebuild the layout if the set of trained tensors has changed. `optimizers` are those that
        were seen to step them."""
        self._num_refreshes += 1
        if self._is_doubtful or self._num_refreshes % _LOOKED_THROUGH_EVERY == 0:
            self._is_doubtful = False
            if missed := self._table.missed():
                self._note_replaced(missed, optimizers)
                self._rebuild(optimizers)
        if not self._table.is_current():
            self._rebuild(optimizers)

    def slots_of(self, optimizer: Optimizer) -> tuple[int, ...]:
        """The slots of an optimizer's tensors; empty if none belongs to the run."""
        slots = self._table.slots_of(optimizer)
        num_unknown = self._table.num_unknown(optimizer)
        if num_unknown != self._unattached.get(optimizer, 0):
            self._unattached[optimizer] = num_unknown
            self._is_doubtful |= num_unknown > 0
        return slots

    def take_notices(self) -> list[str]:
        """Messages about what is not watched or not trained, each returned once."""
        notices, self._notices = self._notices, []
        return notices

    def take_changes(self) -> list[str]:
        """Messages about what is watched instead of something else, each returned once."""
        changes, self._changes = self._changes, []
        return changes

    def slots_of_tensors(self, tensors: Sequence[Tensor]) -> list[int]:
        slots = self._table.slots
        return [slots[id(tensor)] for tensor in tensors if id(tensor) in slots]

    def slots_of_grads(self, grads: Sequence[Tensor]) -> list[int]:
        """The slots of the tensors with these gradients; others are left out."""
        tensors = self._table.tensors
        if len(grads) * _FEW < len(tensors):
            # Indexing all tensors would be slow in programs that clip each gradient by itself.
            found = [(one, self._owners.get(id(one))) for one in grads]
            slots = [at for one, at in found if at is not None and tensors[at].grad is one]
            if len(slots) == len(grads):
                return slots
        self._owners = {id(one.grad): slot for slot, one in enumerate(tensors)}
        return [self._owners[one] for one in map(id, grads) if one in self._owners]

    def gradient_at(self, slot: int) -> Tensor | None:
        """The gradient of the layer at a slot. The slot may be of before a layer left the run:
        without a layer there is no gradient."""
        tensors = self._table.tensors
        return tensors[slot].grad if slot < len(tensors) else None

    def read_gradients(self, slots: Sequence[int], scale: Tensor | None) -> None:
        """Read these tensors' gradients. Without a gradient, a layer stays 'not recorded', not 0.
        `scale` is the loss scale that the gradients still contain."""
        tensors = self._table.tensors
        detail = self._wanted_detail()
        if detail is not None:
            named = {self._name(slot): tensors[slot].grad for slot in slots}
            detail.take_gradients({k: v for k, v in named.items() if v is not None}, scale)
        grad_of = _grad_of if self._table.sharing is None else self._part_of_grad
        with torch.no_grad():
            for device, ours in self._by_device(slots):
                places: list[int] = []
                found: list[Tensor] = []
                for slot in ours:
                    grad = grad_of(tensors[slot])
                    # If a program moves its weights for a while, their gradients stay on the old
                    # device. Reading an address of one device on another would kill the process.
                    if grad is not None and grad.device == device:
                        places.append(self._local[slot])
                        found.append(grad)
                if found:
                    self._parts[device].read_gradients(places, found, scale)

    @property
    def must_be_read(self) -> bool:
        """Whether this step must be read completely: because histograms were asked for, or because
        tensors are sharded and the other ranks read all of theirs."""
        asked = self._detail is not None and self._detail.takes_histograms
        return asked or self._table.sharing is not None

    @property
    def is_broken(self) -> bool:
        """Whether gradients read in this step are known to be non-finite, without a sync."""
        return any(part.is_broken for part in self._parts.values())

    def before_step(self, slots: Sequence[int]) -> None:
        detail = self._wanted_detail()
        if detail is not None:
            detail.take_weights({self._name(slot): self._table.tensors[slot] for slot in slots})
        with torch.no_grad():
            for device, ours in self._by_device(slots):
                self._parts[device].before_step([self._local[slot] for slot in ours])

    def after_step(self) -> None:
        with torch.no_grad():
            for part in self._parts.values():
                part.after_step()

    def take(self, *, weights: bool) -> dict[tuple[int, ...], Tensor]:
        """The step's statistics (S, T) of each device, keyed by the slots of their columns.
        `weights` says whether the weights were read."""
        with torch.no_grad():
            return {
                tuple(self._slots[device]): part.take(weights=weights)
                for device, part in self._parts.items()
            }

    def _wanted_detail(self) -> Detail | None:
        """What measures this step's histograms; None if none are wanted or possible."""
        if self._detail is None or not self._detail.takes_histograms:
            return None
        if self._table.sharing is None:
            return self._detail
        if not self._has_told_sharded:
            self._has_told_sharded = True
            self._notices.append("no histograms are taken of sharded parameters")
        return None

    def _name(self, slot: int) -> str:
        return self._table.layout.layers[slot].name

    def _part_of_grad(self, tensor: Tensor) -> Tensor | None:
        """This rank's part of a gradient. None for one that has yet to be summed over ranks
        (Partial): the norms of the terms do not give the norm of the sum."""
        if is_partitioned(tensor):
            return gradient_of(tensor)
        grad = tensor.grad
        if grad is None or not is_partial(grad):
            return None if grad is None else local_of(grad)
        if not self._has_partial:
            self._has_partial = True
            self._notices.append(
                "gradients that are still sums to be made over ranks (Partial) are not measured"
            )
        return None

    def _note_replaced(self, names: Sequence[str], optimizers: Sequence[KnownOptimizer]) -> None:
        untold = [name for name in names if name not in self._replaced]
        self._replaced.update(untold)
        if not untold:
            return
        words = "parameters were replaced or added, and are watched now"
        stepped = [one.param_groups for one in optimizers]
        stepped += [one.param_groups for one in self._unattached]
        held = {id(one) for groups in stepped for group in groups for one in group["params"]}
        unheld = [name for name in self._table.unheld(held) if name in untold]
        if unheld:
            self._notices.append(f"{words}; no known optimizer holds {_some(unheld)}")
        else:
            self._changes.append(f"{words}: {_some(untold)}")

    def _rebuild(self, optimizers: Sequence[KnownOptimizer]) -> None:
        self._table = self._table.rebuilt(optimizers)
        self._open()

    def _note_left_out(self) -> None:
        num_left_out = self._table.num_left_out
        if num_left_out > self._num_left_out:
            watched = len(self._table.named)
            self._notices.append(
                f"{num_left_out} layers beyond the first {watched} are not watched"
            )
        self._num_left_out = max(self._num_left_out, num_left_out)
        hollow = self._table.hollow
        if len(hollow) > self._num_hollow:
            self._notices.append(
                "layers whose tensors cannot be read, such as quantised ones, are not measured: "
                f"{_some(hollow)}"
            )
        self._num_hollow = max(self._num_hollow, len(hollow))

    def _open(self) -> None:
        self._note_left_out()
        self._owners = {}
        self._slots: dict[torch.device, list[int]] = {}
        self._local: list[int] = []
        self._devices = [tensor.device for tensor in self._table.locals]
        for slot, device in enumerate(self._devices):
            mates = self._slots.setdefault(device, [])
            self._local.append(len(mates))
            mates.append(slot)
        self._parts = {device: self._statistics_on(device) for device in self._slots}

    def _statistics_on(self, device: torch.device) -> LayerStatistics:
        slots = self._slots[device]
        tensors = [self._table.locals[slot] for slot in slots]
        turns = [self._table.turns[slot] for slot in slots]
        are_parts = self._table.sharing is not None
        if device.type == "cpu":
            return CpuStatistics(tensors, turns, are_parts=are_parts)
        if device not in self._readers:
            self._readers[device] = GradientsOnDevice(device, self._faults)
        reader = self._readers[device]
        return DeviceStatistics(tensors, device, reader, turns, are_parts=are_parts)

    def _by_device(self, slots: Sequence[int]) -> Sequence[tuple[torch.device, Sequence[int]]]:
        """Slots grouped by the device that held each layer when the layout was built. A program may
        have moved one elsewhere for a while."""
        if len(self._slots) == 1:
            return [(device, slots) for device in self._slots]
        ours: dict[torch.device, list[int]] = {}
        for slot in slots:
            ours.setdefault(self._devices[slot], []).append(slot)
        return list(ours.items())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _grad_of(tensor: Tensor) -> Tensor | None:
    return tensor.grad
