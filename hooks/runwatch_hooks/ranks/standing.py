"""Where each rank stands among the others: by its own time, and by its loss.

Every rank tells rank 0 what it measured of each step, beside the training; rank 0 compares the
steps of which all have told, and answers with the median over the last of them. A single step
(a garbage collection, an evaluation on one rank alone, a hard batch) moves no median.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 32
"""Compared steps that a standing is the median of."""
_FEWEST: Final = 16
"""Compared steps before anything is said."""
_MAX_OPEN: Final = 512
"""Steps of which some rank has not told; beyond it the oldest is given up."""


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """What a rank measured of one step."""

    segment: int
    step: int
    own_time_s: float
    """NaN: nothing can be said of this step."""
    loss: float
    """NaN: not recorded, or not finite, which others say."""


def pace_of(segment: int, step: int, metrics: Mapping[str, float]) -> Pace | None:
    """None for a row that holds neither."""
    own_time_s, loss = metrics.get("own_time", math.nan), metrics.get("loss", math.nan)
    if math.isnan(own_time_s) and not math.isfinite(loss):
        return None
    return Pace(segment, step, own_time_s, loss if math.isfinite(loss) else math.nan)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one rank stands among the others, as far as it is known."""

    has_drifted: bool | None = None
    """Whether its parameters are others than its replicas'; None: never compared."""
    lag_s: float = math.nan
    """How much longer than the others it works by itself in a step; NaN: not known."""
    loss_gap: float = math.nan
    """By which share of the others' loss its own lies above it; NaN: not known."""


class Standings:
    """Compares the paces of all ranks. Used by one thread."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._open: dict[tuple[int, int], dict[int, Pace]] = {}
        self._own_times: deque[NDArray[np.float64]] = deque(maxlen=WINDOW)
        self._losses: deque[NDArray[np.float64]] = deque(maxlen=WINDOW)

    def take(self, rank: int, pace: Pace) -> None:
        told = self._open.setdefault((pace.segment, pace.step), {})
        told[rank] = pace
        if len(told) == self._world_size:
            del self._open[pace.segment, pace.step]
            self._compare(told)
        while len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]

    def lags_s(self) -> NDArray[np.float32]:
        """(R,) how much longer than the others each rank works by itself; NaN: not known."""
        if len(self._own_times) < _FEWEST:
            return self._unknown()
        times_WR = np.array(self._own_times)
        return np.median(times_WR - _middle(times_WR), axis=0).astype(np.float32)

    def loss_gaps(self) -> NDArray[np.float32]:
        """(R,) by which share of the others' loss each rank's lies above it; NaN: not known.

        What ranks are apart in any case is added to the loss that it is a share of: a loss near
        zero, or one that passes through it, would else be far from everything.
        """
        if len(self._losses) < _FEWEST:
            return self._unknown()
        losses_WR = np.array(self._losses)
        middle_W1 = _middle(losses_WR)
        apart_WR = losses_WR - middle_W1
        level = abs(float(np.median(middle_W1))) + float(np.median(np.abs(apart_WR)))
        if level == 0.0:
            return self._unknown()
        return (np.median(apart_WR, axis=0) / level).astype(np.float32)

    def _compare(self, told: Mapping[int, Pace]) -> None:
        in_order = [told[rank] for rank in sorted(told)]
        for kept, values in (
            (self._own_times, [pace.own_time_s for pace in in_order]),
            (self._losses, [pace.loss for pace in in_order]),
        ):
            values_R = np.array(values)
            if not np.isnan(values_R).any():
                kept.append(values_R)

    def _unknown(self) -> NDArray[np.float32]:
        return np.full(self._world_size, np.nan, np.float32)


def _middle(values_WR: NDArray[np.float64]) -> NDArray[np.float64]:
    """(W, 1) the lower median of each step: of two ranks the lesser, so that the greater stands
    out by all of it."""
    return np.sort(values_WR, axis=1)[:, (values_WR.shape[1] - 1) // 2, np.newaxis]
