"""Momentum that comes into being in a step which changes nothing.

Fused SGD takes memory for a group's momentum in its first step, and leaves it to the kernel to put
the gradients there. A kernel that is told to change nothing puts nothing there, and the next step
would go on from whatever the memory held. Zero it is instead: as after any step, and for all but a
`dampening` the same as none.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.optim import SGD, Optimizer

from runwatch_hooks.measuring.host_memory import to_device


def about_to_have_momentum(optimizer: Optimizer) -> list[Tensor]:
    """Parameters whose momentum the step that begins will bring into being."""
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
    """Make it zero where the 0-dimensional `flag` is not; waits for no device."""
    for parameter in parameters:
        momentum = _momentum_of(optimizer, parameter)
        if momentum is not None:
            momentum.masked_fill_(to_device(flag, momentum.device) != 0.0, 0.0)


def _momentum_of(optimizer: Optimizer, parameter: Tensor) -> Tensor | None:
    states = cast("dict[Tensor, dict[str, Tensor | None]]", optimizer.state)
    return states[parameter].get("momentum_buffer") if parameter in states else None
