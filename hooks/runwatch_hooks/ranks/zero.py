"""Parameters under DeepSpeed's ZeRO: which part of each is stepped on this rank, and its gradient.

From stage 1 on a rank steps a stretch of a flat buffer, in full precision, and the other ranks
theirs; at stage 3 no rank keeps more of the parameter itself either. What DeepSpeed tells of that
is asked for here, by name, so that a program without it needs none of it. Nothing gathers:
`safe_get_full_grad` would be a collective for each parameter of each step.
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
    """What `deepspeed.initialize` gives back as its optimizer, as far as it is used here."""

    optimizer: Optimizer
    """Steps this rank's stretches, group by group."""
    loss_scaler: object
    clip_grad: float
    """The greatest norm, or 0 for none."""
    overflow: bool
    """Whether the last step was left out, as gradients were not finite."""

    @property
    def loss_scale(self) -> float: ...


def zero_types() -> tuple[type, ...]:
    """The optimizers of stages 1 to 3 that the program may have: those that it has imported."""
    found = (getattr(sys.modules.get(home), name, None) for home, name in _HOMES.items())
    return tuple(one for one in found if isinstance(one, type))


def clipping_module() -> ModuleType | None:
    """Where DeepSpeed's engine looks up the clip of its own that it uses at stage 0."""
    return sys.modules.get("deepspeed.runtime.engine")


def is_zero(optimizer: object) -> TypeGuard[ZeroOptimizer]:
    """Not one that is made of such an optimizer: what it does otherwise nobody knows."""
    return type(optimizer) in zero_types()


def keeps_parameters(zero: ZeroOptimizer) -> bool:
    """Stages 1 and 2; at stage 3 no rank has all of a parameter but while that is used."""
    return hasattr(zero, "bit16_groups")


def is_offloaded(zero: ZeroOptimizer) -> bool:
    """Whether it keeps its states in another memory than its parameters'."""
    return any(getattr(zero, name, False) for name in ("cpu_offload", "offload_optimizer"))


def stepped_by(zero: ZeroOptimizer) -> Sequence[Tensor]:
    """The model's parameters that it steps."""
    found = cast(Any, zero)
    groups = found.bit16_groups if keeps_parameters(zero) else found.fp16_groups
    return [parameter for group in groups for parameter in group]


def total_norm_of(zero: ZeroOptimizer) -> Tensor:
    """That of the last step's gradients, unscaled, before it clipped them; NaN where DeepSpeed
    says -1, as it does for what is not finite."""
    found: Tensor | float = cast(Any, zero)._global_grad_norm
    if not isinstance(found, Tensor):
        found = torch.tensor(found, dtype=torch.float32, device="cpu")
    norm: Tensor = found
    return norm.masked_fill(norm < 0, torch.nan)


def is_partitioned(tensor: Tensor) -> bool:
    """Whether it is a parameter that is stepped in parts; nobody has one without DeepSpeed."""
    return "deepspeed" in sys.modules and (_is_gathered_on_use(tensor) or _is_whole_here(tensor))


def stretch_of(parameter: Tensor) -> Tensor:
    """What of it is stepped here: a view in full precision, empty where that is nothing."""
    if _is_gathered_on_use(parameter):
        local: Tensor | None = _tells("safe_get_local_fp32_param")(parameter)
        if local is not None:  # it is for a frozen one
            return local.detach()[: _num_own(parameter)]
    elif (mapping := cast(Any, parameter)._hp_mapping) is not None:
        fragment: Tensor = mapping.get_hp_fragment()
        return fragment.detach()
    return torch.empty(0, device=parameter.device)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """That of `stretch_of`, as DeepSpeed has it right before it steps: of the whole batch, over
    all ranks, and scaled still. None where there is none."""
    grad: Tensor | None = None
    if _is_gathered_on_use(parameter):
        grad = _tells("safe_get_local_grad")(parameter)
        return None if grad is None else grad.detach().view(-1)[: _num_own(parameter)]
    mapping = cast(Any, parameter)._hp_mapping
    if mapping is not None:
        grad = mapping.get_lp_grad_fragment(cast(Any, parameter)._index_in_param_group)
    return None if grad is None else grad.detach().reshape(-1)


def mark_of(parameter: Tensor) -> int:
    """Another one once DeepSpeed has cut its buffers anew."""
    found = cast(Any, parameter)
    return id(found.ds_tensor if _is_gathered_on_use(parameter) else found._hp_mapping)


def ranks_of(parameter: Tensor) -> tuple[int, ...]:
    """Those that step a part of it, this one among them."""
    found = cast(Any, parameter)
    group = found.ds_process_group if _is_gathered_on_use(parameter) else found._dp_group
    return tuple(sorted(dist.get_process_group_ranks(group)))


def shape_of(parameter: Tensor) -> tuple[int, ...]:
    """Of the whole, also while no rank holds it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


class LossScale:
    """The loss scaler's state, to be put back with all else."""

    def __init__(self, zero: ZeroOptimizer) -> None:
        self._scaler = zero.loss_scaler

    def state_dict(self) -> dict[str, object]:
        return dict(vars(self._scaler))

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        vars(self._scaler).update(state_dict)


def _is_whole_here(tensor: Tensor) -> bool:
    """Stages 1 and 2: every rank has the parameter, and steps a stretch of it."""
    return hasattr(tensor, "_hp_mapping")


def _is_gathered_on_use(tensor: Tensor) -> bool:
    """Stage 3."""
    return hasattr(tensor, "ds_id")


def _num_own(parameter: Tensor) -> int:
    """Elements that lie on this rank; the last ones are followed by padding."""
    found = cast(Any, parameter)
    size = int(found.ds_tensor.ds_numel)
    place = dist.get_group_rank(found.ds_process_group, dist.get_rank())
    return max(0, min(size, int(found.ds_numel) - place * size))


def _tells(name: str) -> Any:
    """A function of `deepspeed.utils`."""
    return getattr(sys.modules["deepspeed.utils"], name)
