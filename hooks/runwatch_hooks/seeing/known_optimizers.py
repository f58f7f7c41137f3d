"""Weak references to a run's optimizers, so that dropped ones release their state.

A loop may create a new optimizer for each epoch. The moments of Adam are twice the size of the
model, and no accelerator has room for those of every epoch.
"""

from collections.abc import Collection, Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

from torch import Tensor
from torch.optim import Optimizer

Groups = list[dict[str, Any]]


class KnownOptimizer:
    """An optimizer whose parameter groups stay known after it is gone: they belong to the model."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = ref(optimizer)
        self._groups = optimizer.param_groups

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None once the program has dropped it."""
        return self._optimizer()

    @property
    def param_groups(self) -> Groups:
        """Its current groups, or the last known. They are read anew each time, since
        `load_state_dict` replaces them."""
        optimizer = self._optimizer()
        if optimizer is not None:
            self._groups = optimizer.param_groups
        return self._groups

    def forget(self, tensors: Collection[int]) -> None:
        """Drop the tensors with these ids from the groups, if the optimizer is gone: then only
        these groups keep them alive."""
        if self._optimizer() is None:
            self._groups = [
                group | {"params": [one for one in group["params"] if id(one) not in tensors]}
                for group in self._groups
            ]


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The tensors it steps, in the order of its groups. Saved states identify them by this
    order."""
    groups = cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]


def at_rest(optimizer: Optimizer) -> list[Tensor]:
    """Tensors with a learning rate of 0. Rates that are tensors are not read: on an accelerator
    that would be a sync."""
    groups: Groups = optimizer.param_groups
    resting = [one for one in groups if isinstance(one.get("lr"), (int, float)) and not one["lr"]]
    return [parameter for group in resting for parameter in group["params"]]


def steps_as_torchs_own(optimizer: Optimizer) -> bool:
    """Whether its `step` is defined in torch, so that its behaviour is known."""
    return type(optimizer).step.__module__.startswith("torch.optim.")


class Roster:
    """The optimizers still alive, numbered in the order in which they were added. No number is used
    twice."""

    def __init__(self, optimizers: Iterable[Optimizer] = ()) -> None:
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._num_ever = 0
        for optimizer in optimizers:
            self.add(optimizer)

    def add(self, optimizer: Optimizer) -> None:
        self._numbers[optimizer] = self._num_ever
        self._num_ever += 1

    def living(self) -> dict[int, Optimizer]:
        """Number -> optimizer, in order. The caller holds them; do not store the result."""
        return {number: optimizer for optimizer, number in self._numbers.items()}

    def has_given(self, number: int) -> bool:
        """Whether an optimizer, alive or gone, has this number."""
        return number < self._num_ever
