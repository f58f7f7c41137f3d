"""The objects of a training that a copy of its state must not contain copies of."""

from collections.abc import Iterable, Iterator

from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.actions.optimizer_attributes import wrapped_by
from runwatch_hooks.seeing.known_optimizers import parameters_of


def living_in(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> Iterator[object]:
    """Modules, parameters and buffers, and optimizers, with those that they wrap."""
    for module in modules:
        yield from module.modules()
        yield from module.parameters()
        yield from module.buffers()
    for optimizer in optimizers:
        for one in (optimizer, *wrapped_by(optimizer).values()):
            yield one
            yield from parameters_of(one)
