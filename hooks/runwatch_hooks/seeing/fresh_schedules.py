"""Whether a resumed training goes on with a schedule that has begun anew.

What the learning rate does tells it late, or never: torch's cosine, resumed with its optimizer and
without itself, goes on from the rate that stands in the optimizer, and hardly lowers it any more.
"""

from collections.abc import Sequence
from typing import Final

from runwatch_hooks.seeing.fresh_state import BEGINNING, told_at_first

_ROWS_TO_STEP: Final = 2
"""Within which a scheduler that counts steps has made its first: a loop may step it after the row
is closed. One that counts epochs is at 0 in all of its first epoch, and says nothing."""


class FreshSchedules:
    """Looks at the schedulers before the first step and after it: one that counts steps, and stood
    at 0 where the training did not, was not restored."""

    def __init__(self, schedulers: Sequence[object]) -> None:
        """Those without a `last_epoch`, which are not torch's, are left alone."""
        self._schedulers = schedulers
        self._at_zero: list[object] | None = None
        """None before the first step: until then a program may still load what it saved."""
        self._num_fresh = 0
        self._num_rows = 0

    def before_step(self) -> None:
        if self._at_zero is None:
            self._at_zero = [one for one in self._schedulers if _place_of(one) == 0]

    def end_row(self, step: int) -> float | None:
        """How many schedulers begin anew in a training that does not begin with this life's first
        row, in its first rows; None where there is nothing to say."""
        self._num_rows += 1
        if self._num_rows == 1 and step <= BEGINNING:
            self._at_zero = []
        if self._num_rows <= _ROWS_TO_STEP:
            self._num_fresh = sum(_place_of(one) > 0 for one in self._at_zero or ())
        return told_at_first(self._num_fresh, self._num_rows)


def _place_of(scheduler: object) -> int:
    """How often it has stepped; -1 where it does not say. Accelerate's holds the one that does."""
    place = getattr(getattr(scheduler, "scheduler", scheduler), "last_epoch", -1)
    return place if isinstance(place, int) else -1
