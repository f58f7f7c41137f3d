"""Whether a step is that of another optimizer, which hands it on: `ZeroRedundancyOptimizer`, SAM.

Both have torch's hooks, and hold the same parameters: the two are one step. What is seen of it is
seen where the inner one begins, which moves the parameters.
"""

from collections.abc import Sequence
from weakref import WeakSet, ref

from torch.optim import Optimizer

from runwatch_hooks.wrapping.step_hooks import is_within_another_step_of


class HandedSteps:
    """The steps that are under way, of all optimizers. To be asked by hooks, at the outermost step
    of each; slots are the places of what it steps."""

    def __init__(self) -> None:
        self._under_way: list[_Step] = []
        self._wrappers: WeakSet[Optimizer] = WeakSet()

    def begin(self, optimizer: Optimizer, slots: Sequence[int]) -> bool:
        """Whether the step is handed on by another one, which has some of these slots."""
        givers: list[_Step] = []
        if self._under_way:
            # One that raised was heard to begin, and is never heard to end.
            self._under_way = [one for one in self._under_way if one.is_around()]
            ours = set(slots)
            givers = [one for one in self._under_way if not ours.isdisjoint(one.slots)]
            for one in givers:
                one.handed |= ours
        self._under_way.append(_Step(optimizer, slots, is_handed=bool(givers)))
        return bool(givers)

    def end(self, optimizer: Optimizer) -> bool:
        """Whether it was a step by itself, and no part of another's."""
        while self._under_way:
            step = self._under_way.pop()
            if step.optimizer() is optimizer:
                if step.handed.issuperset(step.slots):
                    self._wrappers.add(optimizer)
                return not step.is_handed
        return True

    def hands_on(self, optimizer: Optimizer) -> bool:
        """Whether a step of it was seen to hand on all that it holds."""
        return optimizer in self._wrappers


class _Step:
    """One that was heard to begin."""

    def __init__(self, optimizer: Optimizer, slots: Sequence[int], *, is_handed: bool) -> None:
        self.optimizer = ref(optimizer)
        self.slots = slots
        self.is_handed = is_handed
        self.handed: set[int] = set()
        """Of its slots, to others, since it began."""

    def is_around(self) -> bool:
        """Whether the step that a hook is called from is a part of this one."""
        optimizer = self.optimizer()
        return optimizer is not None and is_within_another_step_of(optimizer)
