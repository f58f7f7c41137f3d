"""Whether a resumed training goes on with the weights that its checkpoint was made of.

A checkpoint whose names are not the model's, loaded without `strict`, leaves layers as they were
made; the loss says so where they matter, and never which they are. So a watch's own state, which
travels in the checkpoint, holds each layer's norm, and the first ones that are read after a resume
are compared with them. Nothing is read for it that is not read anyway.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from msgspec import ValidationError, convert
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch_hooks.measuring.layer_names import some_of
from runwatch_hooks.rows.row import Row

_OTHER: Final = 0.02
"""Of the norm, beyond what training explains."""
_READINGS: Final = 4
"""Times the last change from one reading to the next that training explains: a checkpoint lies up
to seven steps behind one, and the first one of the next life up to seven further on."""
_SETTLED_AFTER: Final = 100
"""Steps before which a layer's last change says little about its next one."""
_TOLD_FOR: Final = 64
"""Rows in which it is told."""


class RestoredWeights:
    """One rank's; of parts of tensors it says nothing. Layers are read in turns, at every eighth
    step each, and all of them at the first."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._norms_L = np.empty(0, np.float32)
        self._changes_L = np.empty(0, np.float32)
        """From one reading of a layer to its next; NaN before there were two."""
        self._expected: Mapping[str, Sequence[float]] = {}
        self._num_other = 0
        self._num_rows = 0

    def look(self, row: Row) -> list[str]:
        """What is to be told of a row, in words."""
        read_L = _norms_of(row)
        if read_L is None or not np.isfinite(read_L).any():
            return []
        self._note(row.layout, read_L)
        if not self._expected:
            return []
        expected, self._expected = self._expected, {}
        norms = zip(self._names(), read_L.tolist(), strict=True)
        other = [
            name for name, norm in norms if name in expected and _is_other(norm, *expected[name])
        ]
        self._num_other = len(other)
        if not other:
            return []
        words = "these layers are not those of the checkpoint that the run goes on from"
        return [f"{words}: {some_of(other)}"]

    def _note(self, layout: Layout | None, read_L: NDArray[np.float32]) -> None:
        if layout != self._layout:
            self._layout = layout
            self._norms_L = np.full_like(read_L, np.nan)
            self._changes_L = np.full_like(read_L, np.nan)
        is_read_L = np.isfinite(read_L)
        np.copyto(self._changes_L, np.abs(read_L - self._norms_L), where=is_read_L)
        np.copyto(self._norms_L, read_L, where=is_read_L)

    def _names(self) -> list[str]:
        return [] if self._layout is None else [layer.name for layer in self._layout.layers]

    def number(self) -> float | None:
        """How many layers are not, in the first rows after that is known."""
        if not self._num_other:
            return None
        self._num_rows += 1
        num_other = self._num_other
        if self._num_rows > _TOLD_FOR:
            num_other = self._num_other = 0
        return float(num_other)

    def state_dict(self) -> dict[str, list[float]]:
        """Of each layer its norm as it was read last, and how much it had changed by then."""
        read = zip(self._names(), self._norms_L.tolist(), self._changes_L.tolist(), strict=True)
        return {name: [norm, change] for name, norm, change in read if math.isfinite(norm + change)}

    def load_state_dict(self, state_dict: object, next_step: int) -> None:
        """Compare with what an earlier life's `state_dict` returned."""
        if next_step >= _SETTLED_AFTER and isinstance(state_dict, dict):
            saved = cast("dict[str, object]", state_dict)
            self._expected = {name: pair for name, one in saved.items() if (pair := _pair_of(one))}


def _pair_of(saved: object) -> tuple[float, float] | None:
    """None of what somebody else has written there."""
    try:
        return convert(saved, tuple[float, float])
    except ValidationError:
        return None


def _norms_of(row: Row) -> NDArray[np.float32] | None:
    """(L,) not finite where a layer's was not read, or is not finite; None where none is there."""
    if row.layout is None or row.stats is None or row.sharing is not None:
        return None
    if "param_norm" not in row.metrics or "param_norm" not in row.layout.stats:
        return None
    stats_SL = row.stats.reshape(len(row.layout.stats), -1)
    norms_L: NDArray[np.float32] = stats_SL[row.layout.stats.index("param_norm")]
    return norms_L


def _is_other(norm: float, expected: float, change: float) -> bool:
    explained = _OTHER * max(abs(expected), abs(norm)) + _READINGS * change
    return abs(norm - expected) > explained
