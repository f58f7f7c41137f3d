"""Parameters under DeepSpeed's ZeRO: the part of each that this rank steps, and its gradient.

From stage 1 on, each rank steps its own stretch of a flat buffer, in full precision. At stage 3 no
rank keeps more than its part of the parameter itself either. DeepSpeed is accessed through
`sys.modules`, so that it is not imported in programs without it. Nothing is gathered:
`safe_get_full_grad` would be a collective for each parameter at each step.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, Protocol, TypeGuard, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

_HOMES: Final = {
    "deepspeed.runtime.zero.stage_1_and_2": "DeepSpeedZeroOptimizer",
    "deepspeed.runtime.zero.stage3": "DeepSpeedZeroOptimizer_Stage3",
}


class ZeroOptimizer(Protocol):
    """The optimizer that `deepspeed.initialize` returns, as far as it is used here."""

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


def mark_of(parameter: Tensor) -> int:
    """A number that changes when DeepSpeed partitions its buffers again."""
    found = cast(Any, parameter)
    return id(found.ds_tensor if _is_gathered_on_use(parameter) else found._hp_mapping)


def ranks_of(parameter: Tensor) -> tuple[int, ...]:
    """The ranks that step a part of it, including this one."""
    found = cast(Any, parameter)
    group = found.ds_process_group if _is_gathered_on_use(parameter) else found._dp_group
    return tuple(sorted(dist.get_process_group_ranks(group)))


def shape_of(parameter: Tensor) -> tuple[int, ...]:
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
