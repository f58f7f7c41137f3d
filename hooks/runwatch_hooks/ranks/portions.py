"""The portion of a trained tensor that is measured on this rank, for every kind of sharding.

For a DTensor (`shards`) it is the local tensor; for a parameter under DeepSpeed's ZeRO (`zero`) a
stretch of a flat buffer. The portions of all owners together make up the tensor, each element once.
"""

from functools import cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runwatch_hooks.ranks import shards, zero


def is_shared(tensor: Tensor) -> bool:
    """Whether a rank measures only a part of it."""
    return shards.is_sharded(tensor) or zero.is_partitioned(tensor)


def portion_of(tensor: Tensor) -> Tensor:
    """The part measured here; the tensor itself if it is not sharded."""
    return zero.stretch_of(tensor) if zero.is_partitioned(tensor) else shards.local_of(tensor)


def is_hollow(tensor: Tensor) -> bool:
    """Whether the part here cannot be read: a wrapper around other tensors, such as torchao's
    quantised or nested tensors, without memory of its own, or a dtype that torch cannot convert,
    such as float4."""
    if tensor.is_nested or not _is_convertible(tensor.dtype):
        return True
    return is_traceable_wrapper_subclass(portion_of(tensor))


@cache
def _is_convertible(dtype: torch.dtype) -> bool:
    if not dtype.is_floating_point:
        return True
    try:
        torch.empty(1, dtype=dtype, device="cpu").double()
    except NotImplementedError:
        return False
    return True


def owners_of(tensor: Tensor) -> tuple[int, ...]:
    """The ranks whose portions must be joined; empty if rank 0 holds none."""
    if not zero.is_partitioned(tensor):
        return shards.owners_of(tensor)
    ranks = zero.ranks_of(tensor)
    return ranks if 0 in ranks else ()


def mark_of(tensor: Tensor) -> int:
    """A number that changes when the portion moves in memory. Checked at every step."""
    return zero.mark_of(tensor) if zero.is_partitioned(tensor) else id(shards.local_of(tensor))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape of the whole tensor."""
    return zero.shape_of(tensor) if zero.is_partitioned(tensor) else tuple(tensor.shape)
