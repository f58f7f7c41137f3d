"""A run's optimizers, each for as long as the program keeps it: to hold one is to hold its moments.

A loop that makes a new optimizer for each epoch lets go of the one before. Moments are twice the
size of the model, and no accelerator has room for those of every epoch.
"""

from collections.abc import Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

from torch import Tensor
from torch.optim import Optimizer

Groups = list[dict[str, Any]]


class KnownOptimizer:
    """One whose parameters stay known when it is gone: those are the model's, not its own."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = ref(optimizer)
        self._groups = optimizer.param_groups

    @property
    def optimizer(self) -> Optimizer | None:
        """None once the program has let it go."""
        return self._optimizer()

    @property
    def param_groups(self) -> Groups:
        """As they are, or were last: `load_state_dict` puts others in their place."""
        optimizer = self._optimizer()
        if optimizer is not None:
            self._groups = optimizer.param_groups
        return self._groups


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """What it steps, in the order of its groups: a capture names them by it."""
    groups = cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]


def at_rest(optimizer: Optimizer) -> list[Tensor]:
    """What it is told not to move, by a learning rate of 0. Rates that are tensors are not asked:
    one on an accelerator would have to be waited for."""
    groups: Groups = optimizer.param_groups
    resting = [one for one in groups if isinstance(one.get("lr"), (int, float)) and not one["lr"]]
    return [parameter for group in resting for parameter in group["params"]]


def steps_as_torchs_own(optimizer: Optimizer) -> bool:
    """Whether its step is one of torch's: what those do is known."""
    return type(optimizer).step.__module__.startswith("torch.optim.")


class Roster:
    """Those that live, by the number of their coming. No number is given twice."""

    def __init__(self, optimizers: Iterable[Optimizer] = ()) -> None:
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._num_ever = 0
        for optimizer in optimizers:
            self.add(optimizer)

    def add(self, optimizer: Optimizer) -> None:
        self._numbers[optimizer] = self._num_ever
        self._num_ever += 1

    def living(self) -> dict[int, Optimizer]:
        """In the order in which they came. Held by whoever asks, and no longer than that."""
        return {number: optimizer for optimizer, number in self._numbers.items()}

    def has_given(self, number: int) -> bool:
        """Whether one that lives or is gone bears it."""
        return number < self._num_ever
