"""How each rank compares with the others: by its own time, and by its loss.

Every rank sends rank 0 its measurements of each step. Rank 0 compares the steps for which it has
those of all ranks, and answers with medians over the last of them. A single unusual step (garbage
collection, an evaluation on one rank only, a hard batch) does not change a median.
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
"""Number of compared steps over which medians are taken."""
_FEWEST: Final = 16
"""Compared steps before there is a result."""
_MAX_OPEN: Final = 512
"""Steps for which some rank's measurement is missing, beyond which the oldest is dropped."""


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """What a rank measured of one step."""

    segment: int
    step: int
    own_time_s: float
    """NaN: no measurement for this step."""
    loss: float
    """NaN: not recorded, or non-finite, which is reported elsewhere."""


def pace_of(segment: int, step: int, metrics: Mapping[str, float]) -> Pace | None:
    """The measurements in a row's metrics; None if it has neither."""
    own_time_s, loss = metrics.get("own_time", math.nan), metrics.get("loss", math.nan)
    if math.isnan(own_time_s) and not math.isfinite(loss):
        return None
    return Pace(segment, step, own_time_s, loss if math.isfinite(loss) else math.nan)


class Drift(msgspec.Struct, frozen=True, array_like=True):
    """A rank whose parameters differ from its replicas'."""

    rank: int
    num_keys: int
    """The number of parameters that differ."""
    keys: tuple[int, ...]
    """Some of them."""
    is_unreduced: bool
    """Whether most parameters in a wrapper that should reduce gradients differ since the first
    comparison."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one rank compares with the others, as far as it is known."""

    has_drifted: bool | None = None
    """Whether its parameters differ from its replicas'; None: never compared."""
    lag_s: float = math.nan
    """How many seconds longer than the others it works by itself in a step; NaN: not known."""
    loss_gap: float = math.nan
    """How far its loss is above the others', as a share of theirs; NaN: not known."""
    drift: Drift | None = None
    """Which of its parameters differ, if any does."""


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
        """(R,) seconds that each rank works by itself longer than the others; NaN: not known."""
        if len(self._own_times) < _FEWEST:
            return self._unknown()
        times_WR = np.array(self._own_times)
        return np.median(times_WR - _middle(times_WR), axis=0).astype(np.float32)

    def loss_gaps(self) -> NDArray[np.float32]:
        """(R,) how far each rank's loss is above the others', as a share of theirs; NaN: not known.

        The usual difference between ranks is added to the denominator. Otherwise, with a loss near
        zero, or one that passes through it, every rank would be far from the others.
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
    """(W, 1) the lower median of each step. With two ranks it is the smaller value, so that the
    greater one stands out by the full difference."""
    return np.sort(values_WR, axis=1)[:, (values_WR.shape[1] - 1) // 2, np.newaxis]
