"""Whether optimizers take turns: between the steps of two, a backward pass made new gradients.

So do a generator and its judge, an actor and its critic: the loss of one depends on how good the
other is by now, and need not fall. Two optimizers that share one backward pass (Muon for matrices,
Adam for the rest) are one training. So are those that step within it, each as soon as its
gradients are there: the next one's are still to come, by the same pass.
"""

from collections.abc import Iterable, Iterator

from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.seeing.weak_gradients import WeakGradient
from runwatch_hooks.wrapping.backward_pass import is_in_backward


class Turns:
    """Looks at one parameter of each optimizer that has not stepped yet. Compares gradients as
    objects: clipping and unscaling change a gradient's numbers, a new backward pass makes another
    gradient, unless `zero_grad(set_to_none=False)` kept the old one."""

    def __init__(self) -> None:
        self.are_taken = False
        """Stays true once it was seen."""
        self._waiting: dict[int, tuple[Tensor, WeakGradient | None]] = {}

    def before_step(self, optimizer: Optimizer) -> None:
        if is_in_backward():
            return
        waited = self._waiting.pop(id(optimizer), None)
        if waited is None:
            return
        parameter, gradient = waited
        is_known = gradient is not None and gradient.is_of(parameter.grad)
        self.are_taken |= parameter.grad is not None and not is_known

    def after_step(self, optimizer: Optimizer, all_optimizers: Iterable[Optimizer]) -> None:
        if self.are_taken or is_in_backward():
            return
        for other in all_optimizers:
            if other is not optimizer and (parameter := _any_parameter(other)) is not None:
                gradient = None if parameter.grad is None else WeakGradient(parameter.grad)
                self._waiting.setdefault(id(other), (parameter, gradient))

    def end_row(self) -> None:
        self._waiting.clear()


def _any_parameter(optimizer: Optimizer) -> Tensor | None:
    """The first with a gradient, or else the first."""
    parameters: Iterator[Tensor] = (
        one for group in optimizer.param_groups for one in group["params"]
    )
    first = next(parameters, None)
    if first is None or first.grad is not None:
        return first
    return next((one for one in parameters if one.grad is not None), first)
