"""Counts the layers that the program has frozen, and that have no gradient on purpose."""

from collections.abc import Sequence
from typing import Final

from runwatch_hooks.measuring.layer_names import NamedTensor

_LOOKED_EVERY: Final = 8
"""Rows between two counts; counting 500 layers takes tens of microseconds. The rule
LayersWithoutGradient waits longer than that."""


class FrozenLayers:
    """Counts the layers that do not require a gradient any more."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._num_frozen = 0
        self._has_told = False

    def end_row(self, named: Sequence[NamedTensor]) -> float | None:
        """The number at the last count; None if none has been frozen yet."""
        if self._num_rows % _LOOKED_EVERY == 0:
            self._num_frozen = sum(not one.tensor.requires_grad for one in named)
        self._num_rows += 1
        self._has_told = self._has_told or self._num_frozen > 0
        return float(self._num_frozen) if self._has_told else None
