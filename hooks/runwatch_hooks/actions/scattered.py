"""Reads a sharded tensor from the checkpoints of several ranks, for another sharding.

Each saved part records which indices of the whole tensor it holds along each dimension. The same is
computed for the live tensor to be filled, and the overlaps are copied.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any, cast

import torch
from torch import Tensor

from runwatch_hooks.actions.errors import StateMismatchError
from runwatch_hooks.ranks.shards import is_sharded, local_of

Runs = tuple[tuple[int, int], ...]
"""(first, length) of ranges of consecutive indices, in their order in memory."""

Place = tuple[Runs, ...]
"""The indices that a part holds of a tensor, for each dimension."""

_Overlap = tuple[int, int, int]
"""(begin in one part, begin in the other, length)"""


class Scattered:
    """The parts of one tensor. A part held by several replicas is kept once."""

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
