"""Detects a resumed training whose learning rate schedule was not restored.

The learning rate shows it late or never: if the optimizer is restored and torch's cosine schedule
is not, the schedule continues from the rate in the optimizer and hardly lowers it any more.
"""

from collections.abc import Sequence
from typing import Final

from runwatch_hooks.seeing.fresh_state import BEGINNING, told_at_first

_ROWS_TO_STEP: Final = 2
"""Rows within which a scheduler that counts steps makes its first step; a loop may step it after
`watch.step`. One that counts epochs stays at 0 throughout its first epoch and is not judged."""


class FreshSchedules:
    """Looks at the schedulers before and after the first step. One that counts steps and was at 0
    although the training was not at its beginning was not restored."""

    def __init__(self, schedulers: Sequence[object]) -> None:
        """Schedulers without a `last_epoch`, which are not torch's, are ignored."""
        self._schedulers = schedulers
        self._at_zero: list[object] | None = None
        """None before the first step: until then the program may still load its checkpoint."""
        self._num_fresh = 0
        self._num_rows = 0

    def before_step(self) -> None:
        if self._at_zero is None:
            self._at_zero = [one for one in self._schedulers if _place_of(one) == 0]

    def end_row(self, step: int) -> float | None:
        """The number of schedulers that were not restored, in the first rows of a resumed training;
        otherwise None."""
        self._num_rows += 1
        if self._num_rows == 1 and step <= BEGINNING:
            self._at_zero = []
        if self._num_rows <= _ROWS_TO_STEP:
            self._num_fresh = sum(_place_of(one) > 0 for one in self._at_zero or ())
        return told_at_first(self._num_fresh, self._num_rows)


def _place_of(scheduler: object) -> int:
    """How often a scheduler has stepped; -1 if unknown. Accelerate's wraps torch's."""
    place = getattr(getattr(scheduler, "scheduler", scheduler), "last_epoch", -1)
    return place if isinstance(place, int) else -1
