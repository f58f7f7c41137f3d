"""Which call of an optimizer's step is the outermost one: a subclass may call that of its parent,
and torch's hooks hear both.

Counted by the hooks, and held against the stack: a step that raised is heard to begin, and never to
end. No frame is kept for that, which would keep what the failed step's program held as well, the
batch that was too large for the memory among it.
"""

from torch.optim import Optimizer

from runwatch_hooks.wrapping.step_hooks import is_within_another_step_of


class NestedSteps:
    """The steps that are under way. To be asked by hooks, at each step that they hear."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        """By the id of an optimizer. One whose step raised may leave its id to another: the stack
        then says that no step of that one is under way."""

    def enter(self, optimizer: Optimizer) -> bool:
        """A step begins: whether it is the outermost one."""
        depth = self._depths.get(id(optimizer), 0)
        if depth and not is_within_another_step_of(optimizer):
            depth = 0
        self._depths[id(optimizer)] = depth + 1
        return depth == 0

    def leave(self, optimizer: Optimizer) -> bool:
        """A step has ended: whether it is the outermost one, and was seen to begin."""
        depth = self._depths.pop(id(optimizer), 0)
        if depth > 1 and is_within_another_step_of(optimizer):
            self._depths[id(optimizer)] = depth - 1
            return False
        return depth > 0
