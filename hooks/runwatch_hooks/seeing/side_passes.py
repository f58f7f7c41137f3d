"""Passes of `torch.autograd.grad`, which leaves the gradients of parameters as they are.

Some programs look at gradients with it between two optimizers' steps, for a diagnosis or a penalty.
Others train with it, and put what it returns into `grad` by hand. Only the second kind of pass
brings an optimizer new gradients.
"""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from runwatch_hooks.seeing.gradient_version import GradientVersion


class SidePasses:
    """Remembers one gradient of each optimizer, as it was before such a pass."""

    def __init__(self, gradient_at: Callable[[int], Tensor | None]) -> None:
        self._gradient_at = gradient_at
        self._marks: dict[int, tuple[int, GradientVersion] | None] = {}
        """First slot of an optimizer -> the first of its slots with a gradient, and that gradient;
        None if it had no gradient."""

    def begin(self, slots_of_all: Iterable[Sequence[int]]) -> None:
        """A pass begins. Of several in a row, what was there before the first counts."""
        if not self._marks:
            self._marks = {slots[0]: self._mark(slots) for slots in slots_of_all if slots}

    def have_brought(self, slots: Sequence[int]) -> bool:
        """Whether the gradients of the optimizer with these slots have changed since. One that was
        made since counts as changed."""
        if not self._marks:
            return False
        mark = self._marks.get(slots[0])
        if mark is None:
            return self._mark(slots) is not None
        slot, version = mark
        return not version.is_unchanged(self._gradient_at(slot))

    def forget(self) -> None:
        if self._marks:
            self._marks = {}

    def _mark(self, slots: Sequence[int]) -> tuple[int, GradientVersion] | None:
        for slot in slots:
            if (grad := self._gradient_at(slot)) is not None:
                return slot, GradientVersion(grad, 0)
        return None
