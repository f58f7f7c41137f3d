"""Whether a resumed training goes on with an optimizer that has forgotten everything.

Adam without its moments takes steps of full size in each direction until it has learned them anew.
"""

from typing import Final
from weakref import WeakSet

from torch.optim import Optimizer

BEGINNING: Final = 1
"""The first step of those that count from 1."""
_TOLD_FOR: Final = 64
"""Rows in which it is told."""


class FreshState:
    """Looks at the optimizers around their first step: one that keeps a state, and had none before,
    was not restored."""

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
        """How many optimizers a training that does not begin with this row has without their
        state, in its first rows; None where there is nothing to say."""
        self._num_rows += 1
        if self._num_rows == 1 and step <= BEGINNING:
            self._num_fresh = 0
        return told_at_first(self._num_fresh, self._num_rows)


def told_at_first(num_fresh: int, num_rows: int) -> float | None:
    """What a row says of so many that were not restored: their number in the first rows of a life,
    0 in the next one, and then nothing. `num_rows` counts this row."""
    if num_fresh == 0 or num_rows > _TOLD_FOR + 1:
        return None
    return float(num_fresh) if num_rows <= _TOLD_FOR else 0.0
