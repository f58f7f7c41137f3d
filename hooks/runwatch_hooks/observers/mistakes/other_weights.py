"""Detects layers that a resumed training did not restore from its checkpoint.

If the names in a checkpoint differ from the model's and it is loaded with `strict=False`, some
layers keep their initial values. The loss may show it, but not which layers they are. So a watch's
`state_dict`, saved with the checkpoint, holds the norm of each layer, and the first norms read
after a resume are compared with those. They are read anyway, so this costs nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from msgspec import ValidationError, convert
from numpy.typing import NDArray

from runwatch.frames import Event
from runwatch.layouts import Layout
from runwatch.omissions import Omission
from runwatch_hooks.step.observer import StepEnd, StepNotes, StepObserver
from runwatch_hooks.step.row import Row

_OTHER: Final = 0.02
"""Relative difference of the norm, beyond what training explains, that means other weights."""
_READINGS: Final = 4
"""Training explains this many times the layer's last change between two readings. The checkpoint
lies up to seven steps after a reading, and the first reading after the resume up to seven later."""
_SETTLED_AFTER: Final = 100
"""Steps at the beginning in which a layer's last change predicts its next one badly."""
_TOLD_FOR: Final = 64
"""Rows in which the number of such layers is recorded."""
_KEY: Final = "norms"
"""In the watch's state."""


class OtherWeights(StepObserver):
    """Sharded tensors are not compared. Each layer's norm is read at the first step and then at
    every eighth, in turns."""

    name = "other weights"

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._norms_L = np.empty(0, np.float32)
        self._changes_L = np.empty(0, np.float32)
        """(L,) change of each norm between its last two readings; NaN before the second."""
        self._expected: Mapping[str, Sequence[float]] = {}
        self._num_other = 0
        self._num_rows = 0

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """The number of layers not restored, in the first rows after that is known."""
        if not self._num_other:
            return None
        self._num_rows += 1
        num_other = self._num_other
        if self._num_rows > _TOLD_FOR:
            num_other = self._num_other = 0
        return StepNotes({"unrestored_layers": float(num_other)})

    def on_row(self, row: Row) -> Sequence[Event]:
        """Compare a row's norms."""
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
        words = "these layers differ from the checkpoint that the run continues from"
        omission = Omission.of(words, other, metric="unrestored_layers")
        return [omission.to_event(row.step, row.at)]

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

    def state_dict(self) -> dict[str, object]:
        """Layer -> its norm at the last reading, and its change since the reading before."""
        read = zip(self._names(), self._norms_L.tolist(), self._changes_L.tolist(), strict=True)
        pairs = ((name, [norm, change]) for name, norm, change in read)
        return {_KEY: {name: pair for name, pair in pairs if math.isfinite(sum(pair))}}

    def load_state_dict(self, saved: Mapping[str, object], next_step: int) -> None:
        """Compare from now on with the `state_dict` of the earlier attempt."""
        norms = saved.get(_KEY)
        if next_step >= _SETTLED_AFTER and isinstance(norms, dict):
            pairs = cast("dict[str, object]", norms)
            self._expected = {name: pair for name, one in pairs.items() if (pair := _pair_of(one))}


def _pair_of(saved: object) -> tuple[float, float] | None:
    """A saved pair of norm and change; None if it is something else."""
    try:
        return convert(saved, tuple[float, float])
    except ValidationError:
        return None


def _norms_of(row: Row) -> NDArray[np.float32] | None:
    """(L,) norms; not finite where a layer was not read or its norm is not. None without norms."""
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
