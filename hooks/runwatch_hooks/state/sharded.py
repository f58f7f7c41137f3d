"""This rank's part of a state that another number of ranks saved, joined from the parts of all."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.ranks.shards import is_sharded, local_of
from runwatch_hooks.state.checkpoints import Loaded
from runwatch_hooks.state.outcomes import StateMismatchError
from runwatch_hooks.state.training_state import TrainingState
from runwatch_hooks.state.tree import Mapped
from runwatch_hooks.step.layers import optimizer_parameters

Runs = tuple[tuple[int, int], ...]
"""(first, length) of ranges of consecutive indices, in their order in memory."""

Place = tuple[Runs, ...]
"""The indices that a part holds of a tensor, for each dimension."""

_Overlap = tuple[int, int, int]
"""(begin in one part, begin in the other, length)"""


class Scattered:
    """The parts of one tensor. A part held by several replicas is kept once.

    Each saved part records which indices of the whole tensor it holds along each dimension. The
    same is computed for the live tensor to be filled, and the overlaps are copied.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self._parts: dict[Place, Tensor] = {}

    def add(self, place: Place, part: Tensor) -> None:
        """Add a part. It is not copied, and may be in a file mapped into memory."""
        self._parts.setdefault(place, part)

    def part_for(self, live: Tensor | None) -> Tensor:
        """A new tensor with this rank's part of `live`; the whole tensor if that is None.

        Raises StateMismatchError if the parts do not cover it.
        """
        place = _all_of(self.shape) if live is None else place_of(live)
        if place is None:
            raise StateMismatchError(f"found a tensor laid out as {_layout_of(live)}: not known")
        lengths = [_length(runs) for runs in place]
        cut = torch.empty(lengths, dtype=self.dtype, device="cpu")
        num_filled = sum(_fill(cut, place, part, lies) for lies, part in self._parts.items())
        if num_filled != cut.numel():
            raise StateMismatchError(
                f"found {num_filled} elements of a tensor of shape {list(self.shape)} in "
                f"{len(self._parts)} parts, wanted the {cut.numel()} that lie here"
            )
        return cut


def place_of(tensor: Tensor) -> Place | None:
    """The part of a tensor on this rank; None for an unknown layout."""
    if not is_sharded(tensor):
        return _all_of(tensor.shape)
    shared = cast(Any, tensor)
    coordinate = shared.device_mesh.get_coordinate()
    if coordinate is None:  # this rank is not part of the tensor's mesh
        return tuple(() for _ in tensor.shape)
    indices = [torch.arange(size, device="cpu") for size in tensor.shape]
    for mesh_dim, placement in enumerate(shared.placements):
        if placement.is_partial():
            return None
        if not placement.is_replicate():
            dim = cast(int, placement.dim)
            num_ranks = cast(int, shared.device_mesh.size(mesh_dim))
            split_factor = cast(int, getattr(placement, "split_factor", 1))
            indices[dim] = _shard(indices[dim], num_ranks, coordinate[mesh_dim], split_factor)
    if [len(one) for one in indices] != list(local_of(tensor).shape):
        return None
    return tuple(_runs(one) for one in indices)


def _shard(indices: Tensor, num_ranks: int, rank: int, split_factor: int) -> Tensor:
    """The indices of one rank along a dimension, split as by `torch.chunk`. A strided shard (FSDP
    over tensor parallelism) takes its share of each of `split_factor` pieces."""
    shares = [piece.chunk(num_ranks) for piece in indices.chunk(split_factor) if len(piece)]
    return torch.cat([indices[:0], *(share[rank] for share in shares if rank < len(share))])


def _runs(indices: Tensor) -> Runs:
    if not len(indices):
        return ()
    jumps = cast("list[int]", ((indices.diff() != 1).nonzero().flatten() + 1).tolist())
    begins = [0, *jumps, len(indices)]
    return tuple((int(indices[begin]), end - begin) for begin, end in pairwise(begins))


def _all_of(shape: Iterable[int]) -> Place:
    return tuple(((0, size),) for size in shape)


def _length(runs: Runs) -> int:
    return sum(length for _, length in runs)


def _layout_of(tensor: Tensor | None) -> object:
    return getattr(tensor, "placements", None)


def _fill(cut: Tensor, place: Place, part: Tensor, lies: Place) -> int:
    """Copy the overlap of a part with the wanted place; returns the number of elements."""
    num_filled = 0
    along = [_overlaps(*runs) for runs in zip(place, lies, strict=True)]
    for box in product(*along):
        here = tuple(slice(at, at + length) for at, _, length in box)
        there = tuple(slice(at, at + length) for _, at, length in box)
        cut[here] = part[there]
        num_filled += math.prod(length for _, _, length in box)
    return num_filled


def _overlaps(wanted: Runs, held: Runs) -> list[_Overlap]:
    found: list[_Overlap] = []
    at = 0
    for first, length in wanted:
        held_at = 0
        for held_first, held_length in held:
            begin = max(first, held_first)
            end = min(first + length, held_first + held_length)
            if begin < end:
                found.append((at + begin - first, held_at + begin - held_first, end - begin))
            held_at += held_length
        at += length
    return found


MODULES: Final = "modules"
OPTIMIZERS: Final = "optimizers"


@dataclass(frozen=True, slots=True)
class Extent:
    """Which elements of a tensor a rank holds, as its checkpoint says."""

    shape: list[int]
    """Of the whole tensor."""
    place: Place | None
    """None: it was written in a layout that is not known."""
    size: list[int]
    """Of the rank's part."""

    @classmethod
    def of(cls, tensor: Tensor) -> "Extent":
        place = place_of(tensor)
        size = [sum(length for _, length in runs) for runs in place or ()]
        return cls(list(tensor.shape), place, size)

    @classmethod
    def from_saved(cls, saved: Mapped) -> "Extent":
        return cls(
            cast("list[int]", saved["shape"]),
            cast("Place | None", saved["place"]),
            cast("list[int]", saved["size"]),
        )

    def saved(self) -> Mapped:
        return {"shape": self.shape, "place": self.place, "size": self.size}

    def holds(self, item: object) -> bool:
        """Whether an optimizer's state of the tensor is laid out like it, and no single number."""
        return isinstance(item, Tensor) and list(item.shape) == self.size != []


def extents_of(state: TrainingState) -> Mapped:
    """Those of all parameters on this rank, in the form that is saved."""
    return {
        MODULES: {
            name: {key: Extent.of(item).saved() for key, item in module.named_parameters()}
            for name, module in state.modules.items()
        },
        OPTIMIZERS: {
            index: [Extent.of(item).saved() for item in optimizer_parameters(optimizer)]
            for index, optimizer in state.optimizers.items()
        },
    }


def gathered(base: Mapped, parts: Sequence[Loaded], state: TrainingState) -> Mapped:
    """A capture with this rank's part of each tensor, cut out of the parts of all ranks; everything
    else is that of `base`. Raises StateMismatchError, KeyError or IndexError if they do not fit."""
    saved = [_Part(one) for one in parts]
    modules = {
        name: _gathered_module(name, part, saved, state.modules[name])
        for name, part in cast("dict[str, Mapped]", base[MODULES]).items()
    }
    # Replicas leave their optimizers to rank 0.
    numbers = cast("dict[int, Mapped]", base[OPTIMIZERS]) or saved[0].optimizers
    optimizers = {
        index: _gathered_optimizer(index, saved, state.optimizers[index]) for index in numbers
    }
    return {**base, MODULES: modules, OPTIMIZERS: optimizers}


class _Part:
    """What one rank saved, with the extents of its tensors."""

    def __init__(self, loaded: Loaded) -> None:
        self._modules = cast("dict[str, Mapped]", loaded.tree[MODULES])
        self._of_modules = cast("dict[str, dict[str, Mapped]]", loaded.places[MODULES])
        self.optimizers = cast("dict[int, Mapped]", loaded.tree[OPTIMIZERS])
        self._of_optimizers = cast("dict[int, list[Mapped]]", loaded.places[OPTIMIZERS])

    def parameters(self, module: str) -> Iterator[tuple[str, Tensor, Extent]]:
        extents = self._of_modules[module]
        for key, tensor in cast("dict[str, Tensor]", self._modules[module]["parameters"]).items():
            yield key, tensor, Extent.from_saved(extents[key])

    def state(self, optimizer: int, parameter: int) -> Iterator[tuple[str, object, Extent]]:
        """An optimizer's state of one of its parameters; nothing if that was left to rank 0."""
        if optimizer not in self.optimizers:
            return
        states = cast("dict[int, dict[str, object]]", self.optimizers[optimizer]["states"])
        extent = Extent.from_saved(self._of_optimizers[optimizer][parameter])
        for key, item in states[parameter].items():
            yield key, item, extent


def _gathered_module(name: str, part: Mapped, saved: Sequence[_Part], module: nn.Module) -> Mapped:
    scattered: dict[str, Scattered] = {}
    for one in saved:
        for key, tensor, extent in one.parameters(name):
            _add(scattered, key, tensor, extent)
    live = dict(module.named_parameters())
    parameters = {key: one.part_for(live[key]) for key, one in scattered.items() if key in live}
    return {**part, "parameters": parameters}


def _gathered_optimizer(index: int, saved: Sequence[_Part], optimizer: Optimizer) -> Mapped:
    first = saved[0].optimizers[index]
    if first.get("parameters"):
        raise StateMismatchError(
            f"optimizer {index} steps tensors that are no module's: nobody knows which "
            "part of what they are"
        )
    live = optimizer_parameters(optimizer)
    states = {
        number: _gathered_state(index, number, saved, live[number])
        for number in cast("dict[int, Mapped]", first["states"])
    }
    sharded = {
        number: [key for key in state if _is_spread(state[key], live[number])]
        for number, state in states.items()
    }
    return {**first, "states": states, "sharded": sharded}


def _gathered_state(index: int, number: int, saved: Sequence[_Part], live: Tensor) -> Mapped:
    """One parameter's optimizer state. Tensors that are sharded like the parameter are joined from
    all parts."""
    scattered: dict[str, Scattered] = {}
    state: Mapped = {}
    for part in saved:
        for key, item, extent in part.state(index, number):
            if extent.holds(item):
                _add(scattered, key, cast(Tensor, item), extent)
            else:
                state.setdefault(key, item)
    return state | {key: one.part_for(live) for key, one in scattered.items()}


def _add(scattered: dict[str, Scattered], key: str, tensor: Tensor, extent: Extent) -> None:
    """Raises StateMismatchError."""
    if extent.place is None:
        raise StateMismatchError(f"{key}: it was written in a layout that is not known")
    scattered.setdefault(key, Scattered(extent.shape, tensor.dtype)).add(extent.place, tensor)


def _is_spread(item: object, parameter: Tensor) -> bool:
    return isinstance(item, Tensor) and item.dim() > 0 and is_sharded(parameter)
