"""Metrics of the run, computed from the stats of its layers."""

import math

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch.nonfinite import is_absent
from runwatch_hooks.measuring.stats import GRAD_NORM, NONFINITE, PARAM_NORM


class RunTotals:
    """Combines layers, step by step; remembers norms, which are not read at every step."""

    def __init__(self) -> None:
        self._norms = np.empty(0, np.float32)
        self._norms_layout: Layout | None = None

    def over(
        self, layout: Layout, stats: NDArray[np.float32], *, weights: bool = True
    ) -> dict[str, float]:
        """From stats (S, T): `nonfinite` and `layers_with_grad`; `grad_norm` if there are
        gradients; `param_norm` if `weights` were read."""
        are_recorded = ~is_absent(stats)
        num_nonfinite = _sum(stats[NONFINITE], are_recorded[NONFINITE])
        num_with_grad = np.count_nonzero(are_recorded[GRAD_NORM])
        metrics = {"nonfinite": num_nonfinite, "layers_with_grad": float(num_with_grad)}
        if weights:
            metrics["param_norm"] = self._param_norm(layout, stats, are_recorded)
        if num_with_grad:
            metrics["grad_norm"] = _grad_norm(stats, are_recorded, num_nonfinite)
        return metrics

    def _param_norm(
        self, layout: Layout, stats: NDArray[np.float32], are_recorded: NDArray[np.bool_]
    ) -> float:
        """The norm over the latest known norm of each layer, none older than 8 readings."""
        if layout is not self._norms_layout:
            self._norms_layout = layout
            self._norms = np.zeros(len(layout.layers), np.float32)
        np.copyto(self._norms, stats[PARAM_NORM], where=are_recorded[PARAM_NORM])
        return math.sqrt(float(np.square(self._norms, dtype=np.float64).sum()))


def over_parts(stats: NDArray[np.float32]) -> dict[str, float]:
    """Metrics of the shards on one rank, under names of their own because they are not the
    run's."""
    are_recorded = ~is_absent(stats)
    num_nonfinite = _sum(stats[NONFINITE], are_recorded[NONFINITE])
    metrics = {"local_nonfinite": num_nonfinite}
    if are_recorded[GRAD_NORM].any():
        metrics["local_grad_norm"] = _grad_norm(stats, are_recorded, num_nonfinite)
    return metrics


def _grad_norm(
    stats: NDArray[np.float32], are_recorded: NDArray[np.bool_], num_nonfinite: float
) -> float:
    # On a CPU, a layer's norm is over its finite elements. If there are others, the run's norm is
    # NaN, because they are not counted as NaN or infinite. On an accelerator, the layers' norms
    # are NaN or infinite themselves, and so is the run's.
    squares = np.square(stats[GRAD_NORM], dtype=np.float64)
    norm = math.sqrt(_sum(squares, are_recorded[GRAD_NORM]))
    is_hidden = num_nonfinite != 0.0 and math.isfinite(norm)
    return math.nan if is_hidden else norm


def _sum(
    values: NDArray[np.float32] | NDArray[np.float64], are_recorded: NDArray[np.bool_]
) -> float:
    """The sum of recorded values; NaN if one of them is."""
    return float(values[are_recorded].sum(dtype=np.float64))
