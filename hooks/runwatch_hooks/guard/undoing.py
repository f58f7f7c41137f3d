"""Undoes what a guarded step changes in an optimizer's parameters and state.

Torch's optimizers skip a parameter without a gradient, so hiding the gradients makes a step a
no-op. Others may not: some use zeros instead and step by momentum and weight decay, and some count
the step anyway. For these, parameters and state are copied before a bad step and put back after it.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.state.optimizers import capture_optimizer, living_in, restore_optimizer
from runwatch_hooks.state.tree import HostCopies, InPlace
from runwatch_hooks.step.layers import optimizer_parameters, steps_as_torchs_own


def passes_over_none(optimizer: Optimizer) -> bool:
    """Whether its step skips parameters without a gradient, including their step counts."""
    return steps_as_torchs_own(optimizer)


class Before:
    """A copy of an optimizer's parameters, state and options, all in host memory."""

    def __init__(self, optimizer: Optimizer, modules: Iterable[nn.Module]) -> None:
        """The `modules` are not copied where the options refer to them."""
        own = dict(enumerate(optimizer_parameters(optimizer)))
        self._living = tuple(living_in(modules, [optimizer]))
        copies = HostCopies(lambda: self._living)
        self._saved = capture_optimizer(optimizer, copies, {}, own)

    def put_back(self, optimizer: Optimizer) -> None:
        """Restore in place. Raises StateMismatchError if its groups have changed."""
        with torch.no_grad():
            restore_optimizer(optimizer, self._saved, InPlace(lambda: self._living))
