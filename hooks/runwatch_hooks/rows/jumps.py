"""Decides whether a row is sent at once rather than with the next batch of rows."""

import math
from collections.abc import Mapping
from typing import Final

_WATCHED: Final = ("loss", "grad_norm")
_FACTOR: Final = 4.0
_WEIGHT: Final = 0.02
"""Weight of a new number in its exponential moving average, which spans about 50 steps."""
_MIN_STEPS: Final = 20
"""Numbers to see before one can count as a jump: in the first steps, losses change steeply."""


class Jumps:
    """Moving averages of the loss and the gradient norm, whose sudden growth means trouble.

    This only decides how soon a row is sent. Alerts are decided by the service's rules.
    """

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}
        self._num_seen: dict[str, int] = {}

    def is_urgent(self, metrics: Mapping[str, float]) -> bool:
        """Whether a step's metrics contain a jump or a non-finite value. Updates the averages."""
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
