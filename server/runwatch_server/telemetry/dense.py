"""Lays out frames over their steps: one matrix per layout, one column per metric. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runwatch.frames import Frame
from runwatch.nonfinite import ABSENT_32, ABSENT_64, is_absent


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Values of steps `first_step`, `first_step + 1`, ...; 'not recorded' where there was none."""

    first_step: int
    num_steps: int
    metrics: dict[str, NDArray[np.float64]]
    """Name -> (N,)"""
    stats: dict[str, NDArray[np.float32]]
    """Hash of a layout -> (N, C)"""


def lay_out(frames: Iterable[Frame], first_step: int, num_steps: int) -> Dense:
    """The values that frames hold of these steps.

    Frames come in order of their sequence numbers. If a later frame has a value for a step that an
    earlier one held (a metric that was logged afterwards), it replaces that value alone.
    """
    dense = Dense(first_step, num_steps, {}, {})
    for frame in frames:
        start = max(first_step, frame.first_step)
        stop = min(first_step + num_steps, frame.first_step + frame.num_steps)
        if start < stop:
            source = slice(start - frame.first_step, stop - frame.first_step)
            _add(dense, frame, source, slice(start - first_step, stop - first_step))
    return dense


def _add(dense: Dense, frame: Frame, source: slice, target: slice) -> None:
    for column, name in enumerate(frame.metric_names):
        if name not in dense.metrics:
            dense.metrics[name] = np.full(dense.num_steps, ABSENT_64)
        _lay_over(dense.metrics[name][target], frame.metrics[source, column])
    if frame.layout_hash:
        if frame.layout_hash not in dense.stats:
            shape = (dense.num_steps, frame.stats.shape[1])
            dense.stats[frame.layout_hash] = np.full(shape, ABSENT_32)
        _lay_over(dense.stats[frame.layout_hash][target], frame.stats[source])


def _lay_over(
    target: NDArray[np.float64] | NDArray[np.float32],
    values: NDArray[np.float64] | NDArray[np.float32],
) -> None:
    held = values.copy()  # contiguous, since bits are compared
    np.copyto(target, held, where=~is_absent(held))
