"""Which portion of a trained tensor is measured on this rank, in whatever way ranks share it.

A DTensor's (`shards`) lies here as a tensor; that of a parameter under DeepSpeed's ZeRO (`zero`)
is a stretch of a flat buffer. The portions of all owners together are the tensor, each once.
"""

from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runwatch_hooks.ranks import shards, zero


def is_shared(tensor: Tensor) -> bool:
    """Whether a rank has less of it to measure than all."""
    return shards.is_sharded(tensor) or zero.is_partitioned(tensor)


def portion_of(tensor: Tensor) -> Tensor:
    """What of it is measured here: itself, where it is plain."""
    return zero.stretch_of(tensor) if zero.is_partitioned(tensor) else shards.local_of(tensor)


def is_hollow(tensor: Tensor) -> bool:
    """Whether what lies here is a tensor around other tensors, as torchao's quantised ones and
    nested ones are: it has no memory of its own that could be read."""
    return tensor.is_nested or is_traceable_wrapper_subclass(portion_of(tensor))


def owners_of(tensor: Tensor) -> tuple[int, ...]:
    """The ranks whose portions are to be joined; empty where rank 0 has none of it."""
    if not zero.is_partitioned(tensor):
        return shards.owners_of(tensor)
    ranks = zero.ranks_of(tensor)
    return ranks if 0 in ranks else ()


def mark_of(tensor: Tensor) -> int:
    """Another one once the portion lies elsewhere than before. Asked at every step."""
    return zero.mark_of(tensor) if zero.is_partitioned(tensor) else id(shards.local_of(tensor))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Of the whole."""
    return zero.shape_of(tensor) if zero.is_partitioned(tensor) else tuple(tensor.shape)
