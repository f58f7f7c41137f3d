"""Whether optimizers alternate from row to row, as in a GAN that reports each player's step.

A critic often takes several steps to one of the generator. Phases of one training look alike from
afar: first the head and then the rest, or one block of layers after another. They last longer, or
do not give way again to the phase before.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from runwatch_hooks.seeing.stepped_layers import have_layers_in_common

_MAX_ROWS_OF_TURN: Final = 8
"""At most so many rows of one player lie between two turns of the other. WGAN's critic takes five
steps to one of the generator (Arjovsky et al. 2017, algorithm 1). Phases of one training last an
epoch, or tens of steps."""

_MAX_REMEMBERED: Final = 4096
"""Optimizers of one turn: a limit for programs that make new ones for each row."""

_Stepped = Mapping[int, Sequence[int]]
"""The layers' slots of each optimizer that stepped in a row, by the optimizer's identity."""


class RowPlayers:
    """Remembers which layers the current turn and the one before it have stepped."""

    def __init__(self) -> None:
        self._before: _Stepped = {}
        self._now: _Stepped = {}
        self._num_rows = 0
        """Rows of the current turn."""

    def end_row(self, stepped: _Stepped) -> bool:
        """Whether this row gives the turn back to the player before, after a short turn of the
        other's. A row without a step (accumulation, a step that was skipped) is part of no turn."""
        if not stepped:
            return False
        if not self._now or have_layers_in_common(self._now, stepped):
            # Those that step together are one player, also where each leaves out rows of its own.
            has_room = len(self._now) < _MAX_REMEMBERED
            self._now = {**self._now, **stepped} if has_room else dict(stepped)
            self._num_rows += 1
            return False
        is_back = bool(self._before) and have_layers_in_common(self._before, stepped)
        was_short = self._num_rows <= _MAX_ROWS_OF_TURN
        self._before, self._now, self._num_rows = self._now, dict(stepped), 1
        return is_back and was_short
