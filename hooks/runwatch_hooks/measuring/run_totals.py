"""What the layers' stats say about the run as a whole."""

import math

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch.nonfinite import is_absent
from runwatch_hooks.measuring.stats import GRAD_NORM, NONFINITE, PARAM_NORM


class RunTotals:
    """Joins layers, step by step; remembers the norms that are not read at every step."""

    def __init__(self) -> None:
        self._norms = np.empty(0, np.float32)
        self._norms_layout: Layout | None = None

    def over(
        self, layout: Layout, stats: NDArray[np.float32], *, weights: bool = True
    ) -> dict[str, float]:
        """`nonfinite`, `layers_with_grad`, where there is one `grad_norm` and, where `weights` were
        read, `param_norm`; of (S, T) stats."""
        num_with_grad = int((~is_absent(stats[GRAD_NORM])).sum())
        metrics = {
            "nonfinite": _sum(stats[NONFINITE]),
            "layers_with_grad": float(num_with_grad),
        }
        if weights:
            metrics["param_norm"] = self._param_norm(layout, stats)
        if num_with_grad:
            metrics["grad_norm"] = _grad_norm(stats)
        return metrics

    def _param_norm(self, layout: Layout, stats: NDArray[np.float32]) -> float:
        """Over the newest norm known of each layer, none older than the 8th reading before."""
        if layout is not self._norms_layout:
            self._norms_layout = layout
            self._norms = np.zeros(len(layout.layers), np.float32)
        known = ~is_absent(stats[PARAM_NORM])
        self._norms[known] = stats[PARAM_NORM, known]
        return math.sqrt(float(np.square(self._norms, dtype=np.float64).sum()))


def over_parts(stats: NDArray[np.float32]) -> dict[str, float]:
    """Of the parts that lie on one rank: under names of their own, as they are not the run's."""
    metrics = {"local_nonfinite": _sum(stats[NONFINITE])}
    if not is_absent(stats[GRAD_NORM]).all():
        metrics["local_grad_norm"] = _grad_norm(stats)
    return metrics


def _grad_norm(stats: NDArray[np.float32]) -> float:
    # A layer's norm on a CPU is over its finite elements; the run's says that some are
    # not, by a NaN, as nobody counts which of them are infinite. On a device the layers
    # tell infinity from NaN, and so does the run.
    norm = math.sqrt(_sum(np.square(stats[GRAD_NORM], dtype=np.float64)))
    is_hidden = _sum(stats[NONFINITE]) != 0.0 and math.isfinite(norm)
    return math.nan if is_hidden else norm


def _sum(values: NDArray[np.float32] | NDArray[np.float64]) -> float:
    """Over what is recorded; a NaN among it is part of the sum."""
    return float(values[~is_absent(values)].sum(dtype=np.float64))
