"""Whether a step is worth telling at once, rather than with the next bundle of rows."""

import math
from collections.abc import Mapping
from typing import Final

_WATCHED: Final = ("loss", "grad_norm")
_FACTOR: Final = 4.0
_WEIGHT: Final = 0.02
"""Of a new number in its moving average: about 50 steps back."""
_MIN_STEPS: Final = 20
"""Numbers seen before one of them can jump: the first steps of a training fall steeply."""


class Jumps:
    """Slow moving averages of the numbers whose sudden growth means trouble.

    It decides how soon a row is sent, nothing else: judging is the rules' part.
    """

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}
        self._num_seen: dict[str, int] = {}

    def is_urgent(self, metrics: Mapping[str, float]) -> bool:
        """Whether a step's metrics hold a jump, or anything that is not finite. Learns from it."""
        jumps = [self._jumps(name, metrics[name]) for name in _WATCHED if name in metrics]
        num_nonfinite = metrics.get("nonfinite", 0.0) or metrics.get("local_nonfinite", 0.0)
        return any(jumps) or num_nonfinite != 0.0

    def _jumps(self, name: str, value: float) -> bool:
        if not math.isfinite(value):
            return True
        average = self._averages.get(name, value)
        num_seen = self._num_seen[name] = self._num_seen.get(name, 0) + 1
        self._averages[name] = average + max(_WEIGHT, 1.0 / num_seen) * (value - average)
        return num_seen > _MIN_STEPS and not value <= _FACTOR * average
