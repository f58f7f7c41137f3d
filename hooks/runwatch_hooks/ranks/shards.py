"""Sharded tensors: the portion of each that is measured on this rank.

No operation here is dispatched to DTensor: it could be a collective, and costs several times as
much as on the local tensor (`_foreach_norm` of 150: 642 against 180 microseconds, notes of the
design).
"""

import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final, Protocol, TypeGuard, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_PLAIN_TYPES = (Tensor, nn.Parameter)
_MODULE = "torch.distributed.tensor"


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor. False without an import if the program has not imported DTensor."""
    if type(tensor) in _PLAIN_TYPES or _MODULE not in sys.modules:
        return False
    return isinstance(tensor, sys.modules[_MODULE].DTensor)


def local_of(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, without padding; the tensor itself if it is not sharded."""
    return cast("Tensor", cast(Any, tensor)._local_tensor) if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor | None:
    """The local tensor if it is the whole; None if reading the whole would be a collective."""
    if not is_sharded(tensor):
        return tensor
    placements = cast(Any, tensor).placements
    return local_of(tensor) if all(one.is_replicate() for one in placements) else None


def is_partial(tensor: Tensor) -> bool:
    """Whether its elements have yet to be summed over ranks."""
    return is_sharded(tensor) and any(one.is_partial() for one in cast(Any, tensor).placements)


def shard_owners_of(tensor: Tensor) -> tuple[int, ...]:
    """The ranks whose parts together make up the tensor, each part once.

    Along replicated dimensions of the mesh, those at rank 0's coordinate. (0,) for a tensor that is
    not sharded; empty if rank 0 holds no part of it.
    """
    if not is_sharded(tensor):
        return (0,)
    ranks = cast(Any, tensor).device_mesh.mesh
    found = (ranks == 0).nonzero().tolist()
    return _along(tensor, found[0], replicated=False) if found else ()


def replicas_of(tensor: Tensor, rank: int, world_size: int) -> tuple[int, ...]:
    """The ranks that hold the same elements as this one."""
    if not is_sharded(tensor):
        return tuple(range(world_size))
    ranks = cast(Any, tensor).device_mesh.mesh
    found = (ranks == rank).nonzero().tolist()
    return _along(tensor, found[0], replicated=True) if found else (rank,)


def _along(tensor: Tensor, place: Sequence[int], *, replicated: bool) -> tuple[int, ...]:
    """The ranks of a mesh along its replicated dimensions, or along the others."""
    shared = cast(Any, tensor)
    index = tuple(
        slice(None) if placement.is_replicate() == replicated else coordinate
        for placement, coordinate in zip(shared.placements, place, strict=True)
    )
    return tuple(sorted(int(rank) for rank in shared.device_mesh.mesh[index].reshape(-1).tolist()))


_HOMES: Final = {
    "deepspeed.runtime.zero.stage_1_and_2": "DeepSpeedZeroOptimizer",
    "deepspeed.runtime.zero.stage3": "DeepSpeedZeroOptimizer_Stage3",
}


class ZeroOptimizer(Protocol):
    """The optimizer that `deepspeed.initialize` returns, as far as it is used here.

    DeepSpeed's ZeRO. From stage 1 on, each rank steps its own stretch of a flat buffer, in full
    precision. At stage 3 no rank keeps more than its part of the parameter itself either. DeepSpeed
    is accessed through `sys.modules`, so that it is not imported in programs without it. Nothing is
    gathered: `safe_get_full_grad` would be a collective for each parameter at each step.
    """

    optimizer: Optimizer
    """Torch's optimizer, which steps this rank's stretches group by group."""
    loss_scaler: object
    clip_grad: float
    """The maximum norm, or 0 for no clip."""
    overflow: bool
    """Whether the last step was skipped because gradients were non-finite."""

    @property
    def loss_scale(self) -> float: ...


def zero_types() -> tuple[type, ...]:
    """The optimizer classes of stages 1 to 3 that the program has imported."""
    found = (getattr(sys.modules.get(home), name, None) for home, name in _HOMES.items())
    return tuple(one for one in found if isinstance(one, type))


def clipping_module() -> ModuleType | None:
    """The module in which DeepSpeed's engine looks up its own clip, used at stage 0."""
    return sys.modules.get("deepspeed.runtime.engine")


def is_zero(optimizer: object) -> TypeGuard[ZeroOptimizer]:
    """Whether it is one of DeepSpeed's optimizers. Not for subclasses, which may behave
    differently.
    """
    return type(optimizer) in zero_types()


def keeps_parameters(zero: ZeroOptimizer) -> bool:
    """Whether ranks keep whole parameters: at stages 1 and 2, but not at stage 3."""
    return hasattr(zero, "bit16_groups")


def is_offloaded(zero: ZeroOptimizer) -> bool:
    """Whether it keeps its states in other memory than the parameters'."""
    return any(getattr(zero, name, False) for name in ("cpu_offload", "offload_optimizer"))


def stepped_by(zero: ZeroOptimizer) -> Sequence[Tensor]:
    """The model's parameters that it steps."""
    found = cast(Any, zero)
    groups = found.bit16_groups if keeps_parameters(zero) else found.fp16_groups
    return [parameter for group in groups for parameter in group]


def total_norm_of(zero: ZeroOptimizer) -> Tensor:
    """The norm of the last step's gradients, unscaled and before the clip. NaN if DeepSpeed has -1,
    its value for a non-finite norm."""
    found: Tensor | float = cast(Any, zero)._global_grad_norm
    if not isinstance(found, Tensor):
        found = torch.tensor(found, dtype=torch.float32, device="cpu")
    norm: Tensor = found
    return norm.masked_fill(norm < 0, torch.nan)


def is_partitioned(tensor: Tensor) -> bool:
    """Whether it is a parameter that is stepped in parts; nobody has one without DeepSpeed."""
    return "deepspeed" in sys.modules and (_is_gathered_on_use(tensor) or _is_whole_here(tensor))


def stretch_of(parameter: Tensor) -> Tensor:
    """The part that is stepped here: a view in full precision; empty if there is none."""
    if _is_gathered_on_use(parameter):
        local: Tensor | None = _tells("safe_get_local_fp32_param")(parameter)
        if local is not None:  # it is None for a frozen one
            return local.detach()[: _num_own(parameter)]
    elif (mapping := cast(Any, parameter)._hp_mapping) is not None:
        fragment: Tensor = mapping.get_hp_fragment()
        return fragment.detach()
    return torch.empty(0, device=parameter.device)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of `stretch_of`, right before DeepSpeed's step: over the whole batch and all
    ranks, and still scaled. None if there is none."""
    grad: Tensor | None = None
    if _is_gathered_on_use(parameter):
        grad = _tells("safe_get_local_grad")(parameter)
        return None if grad is None else grad.detach().view(-1)[: _num_own(parameter)]
    mapping = cast(Any, parameter)._hp_mapping
    if mapping is not None:
        grad = mapping.get_lp_grad_fragment(cast(Any, parameter)._index_in_param_group)
    return None if grad is None else grad.detach().reshape(-1)


def partition_mark_of(parameter: Tensor) -> int:
    """A number that changes when DeepSpeed partitions its buffers again."""
    found = cast(Any, parameter)
    return id(found.ds_tensor if _is_gathered_on_use(parameter) else found._hp_mapping)


def ranks_of(parameter: Tensor) -> tuple[int, ...]:
    """The ranks that step a part of it, including this one."""
    found = cast(Any, parameter)
    group = found.ds_process_group if _is_gathered_on_use(parameter) else found._dp_group
    return tuple(sorted(dist.get_process_group_ranks(group)))


def partition_shape_of(parameter: Tensor) -> tuple[int, ...]:
    """The shape of the whole parameter, even while no rank holds it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


class LossScale:
    """The loss scaler's state, to be restored by a rollback."""

    def __init__(self, zero: ZeroOptimizer) -> None:
        self._scaler = zero.loss_scaler

    def state_dict(self) -> dict[str, object]:
        return dict(vars(self._scaler))

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        vars(self._scaler).update(state_dict)


def _is_whole_here(tensor: Tensor) -> bool:
    """Whether every rank has the whole parameter, and steps a stretch of it (stages 1 and 2)."""
    return hasattr(tensor, "_hp_mapping")


def _is_gathered_on_use(tensor: Tensor) -> bool:
    """Whether the parameter is gathered only while it is used (stage 3)."""
    return hasattr(tensor, "ds_id")


def _num_own(parameter: Tensor) -> int:
    """Number of elements on this rank; the last rank's are followed by padding."""
    found = cast(Any, parameter)
    size = int(found.ds_tensor.ds_numel)
    place = dist.get_group_rank(found.ds_process_group, dist.get_rank())
    return max(0, min(size, int(found.ds_numel) - place * size))


def _tells(name: str) -> Any:
    """A function of `deepspeed.utils`."""
    return getattr(sys.modules["deepspeed.utils"], name)


# The portion of a DTensor is its local tensor; that of a parameter under ZeRO is a stretch of a
# flat buffer. The portions of all owners together make up the tensor, each element once.


def is_shared(tensor: Tensor) -> bool:
    """Whether a rank measures only a part of it."""
    return is_sharded(tensor) or is_partitioned(tensor)


def portion_of(tensor: Tensor) -> Tensor:
    """The part measured here; the tensor itself if it is not sharded."""
    return stretch_of(tensor) if is_partitioned(tensor) else local_of(tensor)


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
    if not is_partitioned(tensor):
        return shard_owners_of(tensor)
    ranks = ranks_of(tensor)
    return ranks if 0 in ranks else ()


def mark_of(tensor: Tensor) -> int:
    """A number that changes when the portion moves in memory. Checked at every step."""
    return partition_mark_of(tensor) if is_partitioned(tensor) else id(local_of(tensor))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape of the whole tensor."""
    return partition_shape_of(tensor) if is_partitioned(tensor) else tuple(tensor.shape)
