"""Initialises momentum that is created in a step which the guard turns into a no-op.

Fused SGD allocates a group's momentum in its first step, and its kernel writes the gradients into
it. A kernel that must change nothing writes nothing, so the next step would use uninitialised
memory. So the momentum is set to zero, which has the same effect as no momentum unless there is
`dampening`.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.optim import SGD, Optimizer

from runwatch_hooks.statistics.readback import to_device


def about_to_have_momentum(optimizer: Optimizer) -> list[Tensor]:
    """Parameters whose momentum will be created by the step that begins."""
    if not isinstance(optimizer, SGD):
        return []
    found: list[Tensor] = []
    for group in optimizer.param_groups:
        if group["momentum"] != 0.0:
            stepped = [one for one in group["params"] if one.grad is not None]
            if all(_momentum_of(optimizer, one) is None for one in stepped):
                found += stepped
    return found


def blank_momentum(optimizer: Optimizer, parameters: Sequence[Tensor], flag: Tensor) -> None:
    """Set the momentum to zero if the 0-dimensional `flag` is not 0, without a sync."""
    for parameter in parameters:
        momentum = _momentum_of(optimizer, parameter)
        if momentum is not None:
            momentum.masked_fill_(to_device(flag, momentum.device) != 0.0, 0.0)


def _momentum_of(optimizer: Optimizer, parameter: Tensor) -> Tensor | None:
    states = cast("dict[Tensor, dict[str, Tensor | None]]", optimizer.state)
    return states[parameter].get("momentum_buffer") if parameter in states else None
