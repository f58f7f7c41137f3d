"""Detects a resumed training whose optimizer state was not restored.

Adam without its moments takes full-size steps in every direction until it has estimated them again.
"""

from typing import Final
from weakref import WeakSet

from torch.optim import Optimizer

BEGINNING: Final = 1
"""The first step of programs that count from 1."""
_TOLD_FOR: Final = 64
"""Rows in which the number is recorded."""


class FreshState:
    """Looks at the optimizers around their first step. One that has state after it, and had none
    before, was not restored."""

    def __init__(self) -> None:
        self._known: WeakSet[Optimizer] = WeakSet()
        self._empty: WeakSet[Optimizer] = WeakSet()
        self._num_fresh = 0
        self._num_rows = 0

    def before_step(self, optimizer: Optimizer) -> None:
        if self._num_rows == 0 and optimizer not in self._known:
            self._known.add(optimizer)
            if not optimizer.state:
                self._empty.add(optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        if self._num_rows == 0 and optimizer in self._empty and optimizer.state:
            self._empty.discard(optimizer)
            self._num_fresh += 1

    def end_row(self, step: int) -> float | None:
        """The number of optimizers without their state, in the first rows of a resumed training;
        otherwise None."""
        self._num_rows += 1
        if self._num_rows == 1 and step <= BEGINNING:
            self._num_fresh = 0
        return told_at_first(self._num_fresh, self._num_rows)


def told_at_first(num_fresh: int, num_rows: int) -> float | None:
    """What to record for `num_fresh` objects that were not restored: their number in the first rows
    of an attempt, then 0 once, then nothing. `num_rows` includes this row."""
    if num_fresh == 0 or num_rows > _TOLD_FOR + 1:
        return None
    return float(num_fresh) if num_rows <= _TOLD_FOR else 0.0
