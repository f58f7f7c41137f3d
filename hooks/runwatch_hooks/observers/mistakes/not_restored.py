"""Detects a resumed training whose optimizer or learning rate schedule was not restored.

Adam without its moments takes full-size steps in every direction until it has estimated them again.
Of a schedule the rate shows it late or never: if the optimizer is restored and torch's cosine
schedule is not, it continues from the rate in the optimizer and hardly lowers it any more.
"""

from collections.abc import Sequence
from typing import Final
from weakref import WeakSet

from torch.optim import Optimizer

from runwatch_hooks.step.observer import (
    OptimizerStep,
    RunContext,
    StepEnd,
    StepNotes,
    StepObserver,
)

_BEGINNING: Final = 1
"""The first step of programs that count from 1."""
_TOLD_FOR: Final = 64
"""Rows in which the numbers are recorded."""
_ROWS_TO_STEP: Final = 2
"""Rows within which a scheduler that counts steps makes its first step; a loop may step it after
`watch.step`. One that counts epochs stays at 0 throughout its first epoch and is not judged."""


class NotRestored(StepObserver):
    """Looks at optimizers and schedulers around their first step. An optimizer that has state after
    it, and had none before, was not restored. Nor was a scheduler that counts steps and was at 0.
    """

    name = "not restored"

    def __init__(self, schedulers: Sequence[object]) -> None:
        """Schedulers without a `last_epoch`, which are not torch's, are ignored."""
        self._schedulers = schedulers
        self._at_zero: list[object] | None = None
        """None before the first step: until then the program may still load its checkpoint."""
        self._known: WeakSet[Optimizer] = WeakSet()
        self._empty: WeakSet[Optimizer] = WeakSet()
        self._num_optimizers = 0
        self._num_schedulers = 0
        self._num_rows = 0

    @classmethod
    def make(cls, run: RunContext) -> StepObserver | None:
        return cls(run.schedulers) if run.world.is_leader else None

    def before_optimizer(self, step: OptimizerStep) -> None:
        if self._at_zero is None:
            self._at_zero = [one for one in self._schedulers if _place_of(one) == 0]
        if self._num_rows == 0 and step.optimizer not in self._known:
            self._known.add(step.optimizer)
            if not step.optimizer.state:
                self._empty.add(step.optimizer)

    def after_optimizer(self, step: OptimizerStep) -> None:
        if self._num_rows == 0 and step.optimizer in self._empty and step.optimizer.state:
            self._empty.discard(step.optimizer)
            self._num_optimizers += 1

    def end_step(self, end: StepEnd) -> StepNotes | None:
        self._num_rows += 1
        if self._num_rows == 1 and end.step <= _BEGINNING:
            self._num_optimizers, self._at_zero = 0, []
        if self._num_rows <= _ROWS_TO_STEP:
            self._num_schedulers = sum(_place_of(one) > 0 for one in self._at_zero or ())
        if self._num_rows > _TOLD_FOR + 1:
            return None
        found = {"fresh_optimizers": self._num_optimizers, "fresh_schedulers": self._num_schedulers}
        is_told = float(self._num_rows <= _TOLD_FOR)  # the last row is a 0
        return StepNotes({name: num * is_told for name, num in found.items() if num})


def _place_of(scheduler: object) -> int:
    """How often a scheduler has stepped; -1 if unknown. Accelerate's wraps torch's."""
    place = getattr(getattr(scheduler, "scheduler", scheduler), "last_epoch", -1)
    return place if isinstance(place, int) else -1
