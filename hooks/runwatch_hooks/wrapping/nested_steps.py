"""Finds the outermost of nested calls of one optimizer's `step`.

A subclass may call its parent's `step`, and torch's hooks run for both. Calls are counted by the
hooks and checked against the call stack, because a step that raises runs its pre-hook and never its
post-hook. No frame is kept for this: it would keep alive the failed step's variables, such as the
batch that did not fit into memory.
"""

from torch.optim import Optimizer

from runwatch_hooks.wrapping.step_hooks import is_within_another_step_of


class NestedSteps:
    """The steps in progress. To be called by step hooks, at each step."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        """Optimizer's id -> nesting depth. After a step that raised, the entry stays, and its id
        may go to another optimizer: the call stack then shows that no step of that one is
        running."""

    def enter(self, optimizer: Optimizer) -> bool:
        """A step begins. Returns whether it is the outermost one."""
        depth = self._depths.get(id(optimizer), 0)
        if depth and not is_within_another_step_of(optimizer):
            depth = 0
        self._depths[id(optimizer)] = depth + 1
        return depth == 0

    def leave(self, optimizer: Optimizer) -> bool:
        """A step has ended. Returns whether it is the outermost one, and its beginning was seen."""
        depth = self._depths.pop(id(optimizer), 0)
        if depth > 1 and is_within_another_step_of(optimizer):
            self._depths[id(optimizer)] = depth - 1
            return False
        return depth > 0
