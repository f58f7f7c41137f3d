"""Which layers each backward pass before a step has reached.

A program may run the passes of all its players before it steps any of them. Passes that accumulate
reach layers in common; those of two players, of which one may clear what the other's pass has left
in its gradients, do not.
"""

from collections.abc import Callable
from typing import Final

from torch import Tensor

from runwatch_hooks.seeing.gradient_version import GradientVersion

_MAX_LOOKS: Final = 64
"""Passes that are looked at. A program shows in its first rows in what order it works, and each
look costs time as the number of layers does."""


class ReachedLayers:
    """The passes since the last step, with the slots of the layers whose gradients they changed."""

    def __init__(self, gradient_at: Callable[[int], Tensor | None]) -> None:
        self._gradient_at = gradient_at
        self._marks: dict[int, GradientVersion | None] = {}
        self._reached: list[set[int]] = []
        self._num_looks = 0

    def begin_pass(self, num_layers: int) -> None:
        """A pass that adds to the gradients of the run's layers begins."""
        self._end_pass()
        if self._num_looks < _MAX_LOOKS:
            self._num_looks += 1
            self._marks = {slot: self._version_at(slot) for slot in range(num_layers)}

    def begin_step(self) -> list[set[int]]:
        """An optimizer steps. The slots that each pass since the step before has reached; those
        whose gradients were cleared again before the next pass are left out."""
        self._end_pass()
        reached, self._reached = self._reached, []
        return reached

    def forget(self) -> None:
        if self._marks or self._reached:
            self._marks, self._reached = {}, []

    def _end_pass(self) -> None:
        if self._marks:
            self._reached.append({slot for slot in self._marks if self._is_changed(slot)})
            self._marks = {}

    def _is_changed(self, slot: int) -> bool:
        before, now = self._marks[slot], self._gradient_at(slot)
        return now is not None and (before is None or not before.is_unchanged(now))

    def _version_at(self, slot: int) -> GradientVersion | None:
        grad = self._gradient_at(slot)
        return None if grad is None else GradientVersion(grad, 0)
