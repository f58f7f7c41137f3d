"""Which optimizers' steps can be guarded, and why the others' cannot."""

from collections.abc import Sequence
from typing import cast

from torch.optim import LBFGS, Optimizer

from runwatch_hooks.errors import AttachError
from runwatch_hooks.guard.undoing import passes_over_none
from runwatch_hooks.ranks.shards import is_sharded
from runwatch_hooks.step.layers import optimizer_parameters


def check_guardable(optimizers: Sequence[Optimizer]) -> None:
    """Raises AttachError for an optimizer whose steps cannot be guarded."""
    for optimizer in optimizers:
        objection = objection_to(optimizer)
        if objection:
            raise AttachError(f"guard: {objection}")


def objection_to(optimizer: Optimizer) -> str:
    """Why an optimizer cannot be guarded; empty if it can."""
    name = type(optimizer).__name__
    parameters = optimizer_parameters(optimizer)
    if any(is_sharded(one) for one in parameters):
        return f"{name} steps sharded parameters: ranks would decide separately, each by its part"
    places = {one.device.type for one in parameters} - {"cpu"}
    if places and not asks_the_device(optimizer):
        return f"found {name} on {places.pop()}, wanted one that asks the device: fused=True"
    return ""


def objection_to_closures(optimizer: Optimizer) -> str:
    """Why an optimizer cannot be guarded if its step evaluates a closure; empty if it can.

    Torch's optimizers evaluate it once, before anything else. LBFGS evaluates it again after moving
    the parameters. Others are unknown: sharpness-aware ones move the parameters first.
    """
    kind = type(optimizer)
    if not isinstance(optimizer, LBFGS) and passes_over_none(optimizer):
        return ""
    return f"{kind.__name__} may move its parameters before its closure has run for the last time"


def asks_the_device(optimizer: Optimizer) -> bool:
    """Whether it honours `found_inf`: torch marks such optimizers for its gradient scaler."""
    groups = cast("list[dict[str, object]]", optimizer.param_groups)
    are_fused = all(bool(group.get("fused")) for group in groups)
    return are_fused and bool(getattr(optimizer, "_step_supports_amp_scaling", False))
