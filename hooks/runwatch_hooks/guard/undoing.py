"""What a bad step does to an optimizer's parameters and state, undone as it ends.

Torch's own optimizers pass over a parameter without a gradient, and so are told to change nothing
by taking the gradients out of their sight. What others do then nobody knows: some put zeros in
their place and step by momentum and decay, some count their steps all the same. Of these what was
before is kept, in a second copy for the length of a bad step, and put back.
"""

import torch
from torch.optim import Optimizer

from runwatch_hooks.actions.optimizers import capture_optimizer, restore_optimizer
from runwatch_hooks.actions.trees import HostCopies, InPlace
from runwatch_hooks.seeing.known_optimizers import parameters_of, steps_as_torchs_own


def passes_over_none(optimizer: Optimizer) -> bool:
    """Whether its step leaves alone what has no gradient, and counts nothing there."""
    return steps_as_torchs_own(optimizer)


class Before:
    """Parameters, state and options of an optimizer, all in the host's memory, as they are now."""

    def __init__(self, optimizer: Optimizer) -> None:
        own = dict(enumerate(parameters_of(optimizer)))
        self._saved = capture_optimizer(optimizer, HostCopies(), {}, own)

    def put_back(self, optimizer: Optimizer) -> None:
        """In place. Raises StateMismatchError where its groups are others by now."""
        with torch.no_grad():
            restore_optimizer(optimizer, self._saved, InPlace())
