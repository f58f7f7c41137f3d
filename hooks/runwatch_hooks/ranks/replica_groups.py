"""Which ranks hold copies of a parameter, as far as the parameter and the wrapper around it say."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks.ranks.shards import is_sharded, replicas_of

_SET_ON_PARTS: Final = (
    "tensor_model_parallel",  # Megatron, Transformer Engine, NeuronX, DeepSpeed's AutoTP
    "model_parallel",  # fairscale, and Megatron before it
    "expert_model_parallel",  # MegaBlocks, NeuronX
    "expert",  # fairseq, fairscale
    "is_expert",
)
"""Attributes by which code bases mark a parameter as this rank's own part of a larger one."""
_SETS_DIM: Final = "partition_dim"
"""Likewise: the dimension that is split, or -1. Some set it on whole parameters as well, beside a
`tensor_model_parallel` that is false."""
_REDUCED: Final = "allreduce"
"""False on experts (Megatron, DeepSpeed, Tutel), whose gradients are not those of all ranks."""


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The ranks that may hold copies of a parameter."""

    ranks: tuple[int, ...]
    is_bound: bool
    """Whether a DistributedDataParallel keeps the copies equal, so that they need not be seen equal
    to count as copies."""


class ReplicaGroups:
    """The groups of this rank's parameters, as they are wrapped now."""

    def __init__(self, modules: Mapping[str, nn.Module], rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._wrapped = _wrapped_in(modules.values())

    def of(self, tensor: Tensor) -> ReplicaGroup:
        ranks = self._wrapped.get(id(tensor))
        if ranks is not None and not is_sharded(tensor) and not is_marked(tensor):
            return ReplicaGroup(ranks, is_bound=True)
        return ReplicaGroup(replicas_of(tensor, self._rank, self._world_size), is_bound=False)


def is_marked(tensor: Tensor) -> bool:
    """Whether the program says that other ranks hold other parts of the parameter."""
    marks: Mapping[str, object] = getattr(tensor, "__dict__", {})
    if any(marks.get(name) is True for name in _SET_ON_PARTS) or marks.get(_REDUCED) is False:
        return True
    dim = marks.get(_SETS_DIM)
    return isinstance(dim, int) and dim >= 0 and _SET_ON_PARTS[0] not in marks


def _wrapped_in(modules: Iterable[nn.Module]) -> dict[int, tuple[int, ...]]:
    """Ids of the parameters whose gradients a DistributedDataParallel reduces, and over which
    ranks."""
    found: dict[int, tuple[int, ...]] = {}
    for one in {id(part): part for module in modules for part in module.modules()}.values():
        if isinstance(one, DistributedDataParallel):
            wrapper = cast(Any, one)  # torch leaves its attributes without types
            ranks = tuple(sorted(dist.get_process_group_ranks(wrapper.process_group)))
            ignored: AbstractSet[str] = wrapper.parameters_to_ignore
            module: nn.Module = wrapper.module
            if len(ranks) > 1:
                held = module.named_parameters()
                found |= {id(tensor): ranks for name, tensor in held if name not in ignored}
    return found
