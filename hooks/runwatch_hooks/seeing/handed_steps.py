"""Detects optimizers that delegate their step to another: `ZeroRedundancyOptimizer`, SAM.

Both run torch's hooks and hold the same parameters, but the two calls are one step. It is read at
the inner call, which changes the parameters.
"""

from collections.abc import Sequence
from weakref import WeakSet, ref

from torch.optim import Optimizer

from runwatch_hooks.wrapping.step_hooks import is_within_another_step_of


class HandedSteps:
    """The steps in progress, of all optimizers. To be called by step hooks, at the outermost step
    of each optimizer; `slots` are those of its parameters."""

    def __init__(self) -> None:
        self._under_way: list[_Step] = []
        self._wrappers: WeakSet[Optimizer] = WeakSet()

    def begin(self, optimizer: Optimizer, slots: Sequence[int]) -> bool:
        """A step begins. Returns whether another optimizer with some of these slots delegates
        it."""
        givers: list[_Step] = []
        if self._under_way:
            # A step that raised has run its pre-hook, and never runs its post-hook.
            self._under_way = [one for one in self._under_way if one.is_around()]
            ours = set(slots)
            givers = [one for one in self._under_way if not ours.isdisjoint(one.slots)]
            for one in givers:
                one.handed |= ours
        self._under_way.append(_Step(optimizer, slots, is_handed=bool(givers)))
        return bool(givers)

    def end(self, optimizer: Optimizer) -> bool:
        """A step has ended. Returns whether it was a step of its own, not part of another's."""
        while self._under_way:
            step = self._under_way.pop()
            if step.optimizer() is optimizer:
                if step.handed.issuperset(step.slots):
                    self._wrappers.add(optimizer)
                return not step.is_handed
        return True

    def hands_on(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer was seen to delegate a step for all its parameters."""
        return optimizer in self._wrappers


class _Step:
    """A step in progress."""

    def __init__(self, optimizer: Optimizer, slots: Sequence[int], *, is_handed: bool) -> None:
        self.optimizer = ref(optimizer)
        self.slots = slots
        self.is_handed = is_handed
        self.handed: set[int] = set()
        """Slots that inner steps have taken over since it began."""

    def is_around(self) -> bool:
        """Whether the step that called this hook runs inside this one."""
        optimizer = self.optimizer()
        return optimizer is not None and is_within_another_step_of(optimizer)
