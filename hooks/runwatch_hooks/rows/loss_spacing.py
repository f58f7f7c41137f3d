"""Tells how far the next loss is from one in half precision.

In bfloat16 a loss of 10.8 is a multiple of 1/16, so that rows repeat one while it falls. Rules
about a frozen loss read `loss_resolution`.
"""

from math import isfinite
from typing import Final

from runwatch.half_precision import NUM_BITS, significant_bits, spacing

_MOST_BITS: Final = max(NUM_BITS.values())
_LEAST_LOSSES: Final = 8
"""A loss of few bits is one in half precision only if all are: 2.5 is a number like others."""


class LossSpacing:
    """Recognises the type by the losses that it has been shown, since a program may pass on
    `loss.item()`."""

    def __init__(self) -> None:
        self._num_bits = 0
        self._num_losses = 0

    def note_in(self, metrics: dict[str, float]) -> None:
        """Add the metric to a row's, if its loss and all before it were in half precision."""
        loss = metrics.get("loss", 0.0)
        if self._num_bits > _MOST_BITS or not loss or not isfinite(loss):
            return
        self._num_losses += 1
        self._num_bits = max(self._num_bits, significant_bits(loss))
        if self._num_losses >= _LEAST_LOSSES and self._num_bits in NUM_BITS.values():
            metrics.setdefault("loss_resolution", spacing(loss, self._num_bits))
