"""What a function of the rule language makes of a history's windows, at many points at once.

Legend: K points, L columns of the history, F samples that a window holds.
"""

from typing import Any, Final

import numpy as np

from runwatch.rules.expressions import Windowed
from runwatch.rules.statistics import of_windows
from runwatch.rules.windows import Bools, Floats, History, Indices

_GATHERED_SAMPLES: Final = 2**19
"""Samples gathered into windows at a time: 4 MiB, about what a core's cache holds."""

_OF_ANY_LAYOUT: Final = ("max", "min", "prev", "count")
"""Functions whose result has the same bits whatever the order of their samples in memory and
however wide these are, so that they need not be copied."""


class WindowsAt:
    """The windows of a history that end before some rows of the block that was laid."""

    def __init__(self, history: History, rows_K: Indices, columns_K: Indices) -> None:
        """`rows_K` count from the first row that was laid."""
        self._history = history
        self._rows_K = rows_K
        self._columns_K = columns_K
        self.filled_K = history.filled_at(rows_K, columns_K)
        """How many samples each holds."""

    def values(self, node: Windowed, known_K: Bools, current_K: Floats | None) -> Floats:
        """(K,) of the windows that are known; of the others 0 for a count, else NaN. `current_K`
        are the samples that the windows stand before, for functions that look at them."""
        values_K = np.full(len(self._rows_K), 0.0 if node.function == "count" else np.nan)
        for size in _sizes(self.filled_K, known_K):
            chosen = np.flatnonzero(known_K & (self.filled_K == size))
            for some in np.array_split(chosen, 1 + len(chosen) * node.size // _GATHERED_SAMPLES):
                windows = self._history.windows_at(self._rows_K[some], self._columns_K[some])
                windows_KF: Any = windows[:, node.size - size :]
                if node.function not in _OF_ANY_LAYOUT:
                    windows_KF = np.ascontiguousarray(windows_KF, np.float64)
                current = None if current_K is None else current_K[some]
                values_K[some] = of_windows(node.function, node.parameter, windows_KF, current)
        return values_K


def settled_values(node: Windowed, history: History, rows_K: Indices) -> Floats:
    """(L,) of windows that are full and take no more samples: computed once, not at each row."""
    if node.function not in history.settled:
        columns_L = np.arange(history.num_columns)
        windows_LF = history.windows_at(np.full(history.num_columns, rows_K[0]), columns_L)
        history.settled[node.function] = of_windows(
            node.function, node.parameter, np.ascontiguousarray(windows_LF, np.float64)
        )
    return history.settled[node.function]


def _sizes(filled_K: Indices, known_K: Bools) -> Indices:
    """The different numbers of samples that the known windows hold, without 0."""
    if known_K.all() and filled_K.size and (filled_K == filled_K[0]).all():
        return filled_K[:1] if filled_K[0] else filled_K[:0]
    return np.unique(filled_K[known_K & (filled_K > 0)])
