"""A row: the record of one step, whether it went well, and when it is sent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.half_precision import NUM_BITS, significant_bits, spacing
from runwatch.histograms import Histograms
from runwatch.layouts import Layout

_WATCHED: Final = ("loss", "grad_norm")
_FACTOR: Final = 4.0
_WEIGHT: Final = 0.02
"""Weight of a new number in its exponential moving average, which spans about 50 steps."""
_MIN_STEPS: Final = 20
"""Numbers to see before one can count as a jump: in the first steps, losses change steeply."""


class Jumps:
    """Moving averages of the loss and the gradient norm, whose sudden growth means trouble.

    This only decides how soon a row is sent. Alerts are decided by the service's rules.
    """

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}
        self._num_seen: dict[str, int] = {}

    def is_urgent(self, metrics: Mapping[str, float]) -> bool:
        """Whether a step's metrics contain a jump or a non-finite value. Updates the averages."""
        jumps = [self._jumps(name, metrics[name]) for name in _WATCHED if name in metrics]
        num_nonfinite = metrics.get("nonfinite", 0.0) or metrics.get("local_nonfinite", 0.0)
        return any(jumps) or num_nonfinite != 0.0

    def _jumps(self, name: str, value: float) -> bool:
        if not math.isfinite(value):
            return True
        average = self._averages.get(name, value)
        num_seen = self._num_seen[name] = self._num_seen.get(name, 0) + 1
        self._averages[name] = average + max(_WEIGHT, 1.0 / num_seen) * (value - average)
        return num_seen > _MIN_STEPS and not value <= _FACTOR * average


_MOST_BITS: Final = max(NUM_BITS.values())
_LEAST_LOSSES: Final = 8
"""A loss of few bits is one in half precision only if all are: 2.5 is a number like others."""


class LossSpacing:
    """Recognises the type by the losses that it has been shown, since a program may pass on
    `loss.item()`.

    Tells how far the next loss is from one in half precision. In bfloat16 a loss of 10.8 is a
    multiple of 1/16, so that rows repeat one while it falls. Rules about a frozen loss read
    `loss_resolution`.
    """

    def __init__(self) -> None:
        self._num_bits = 0
        self._num_losses = 0

    def note_in(self, metrics: dict[str, float]) -> None:
        """Add the metric to a row's, if its loss and all before it were in half precision."""
        loss = metrics.get("loss", 0.0)
        if self._num_bits > _MOST_BITS or not loss or not isfinite(loss):
            return
        self._num_losses += 1
        self._num_bits = max(self._num_bits, significant_bits(loss))
        if self._num_losses >= _LEAST_LOSSES and self._num_bits in NUM_BITS.values():
            metrics.setdefault("loss_resolution", spacing(loss, self._num_bits))


class StepTimer:
    """A stopwatch with nested pauses. `now` is a monotonic clock's time in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._pauses: list[float] = []
        self._paused_s = 0.0

    def begin(self, now: float) -> None:
        """A step begins. A pause that is still open, such as a `phase` block around a whole loop,
        counts from here on, and does not swallow the steps inside it."""
        self._began = now
        self._paused_s = 0.0
        self._pauses = [now] * len(self._pauses)

    def lap(self, now: float) -> float | None:
        """Seconds of the step that ends now. None for the first, whose beginning is not known."""
        if self._began is None:
            return None
        return max(now - self._began - self._paused_s, 0.0)

    def pause(self, now: float) -> None:
        """Begin a pause; pauses may be nested."""
        self._pauses.append(now)

    def go_on(self, now: float) -> None:
        began = self._pauses.pop()
        if not self._pauses:
            self._paused_s += now - began


@dataclass(frozen=True, slots=True)
class Sharing:
    """For each layer, which ranks hold parts of it."""

    owners: tuple[tuple[int, ...], ...]
    """The ranks whose parts make up the whole tensor, one of each set of replicas; (0,) for a
    tensor that is not sharded."""
    sizes: tuple[int, ...]
    """Number of elements of each layer on this rank."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Metrics and layer statistics of one step.

    What is logged for a step is a row with its number, and joins the step's own on its way to the
    service, unless that has left.
    """

    step: int
    segment: int
    at: float
    """Unix seconds at the end of the step, by the trainer's clock."""
    metrics: Mapping[str, float]
    """Run metrics by name; may be NaN or infinite. A metric not recorded is left out."""
    layout: Layout | None = None
    """The layers and stats that `stats` consists of; None without `stats`."""
    stats: NDArray[np.float32] | None = None
    """(C,) all layers' values of the first stat, then of the next; `runwatch.nonfinite.ABSENT_32`
    means not recorded. Owned by the row."""
    sharing: Sharing | None = None
    """How the layers are split over ranks, if `stats` describes this rank's shards and has yet to
    be joined with the other ranks'. None: `stats` describes whole tensors."""
    histograms: tuple[Histograms, ...] = ()
    is_lost: bool = False
    """Its layers were measured, but their numbers found no room on their way from a device."""
    urgent: bool = False
    """To be sent at once, because something is not finite or has jumped."""
    is_logged: bool = False
    """It consists of numbers that were logged for the step, and is not the step's own."""

    def joined_by(self, later: "Row") -> "Row":
        """Both rows of one step, of which at least one was logged. Of a number that both have, the
        later counts, but what is not finite stays."""
        given = {
            name: number
            for name, number in later.metrics.items()
            if math.isfinite(self.metrics.get(name, 0.0))
        }
        own = later if self.is_logged else self
        urgent = self.urgent or later.urgent
        return replace(own, metrics={**self.metrics, **given}, urgent=urgent)


def is_broken(row: Row) -> bool:
    """Whether its loss or its gradients are not finite. That AMP skips a step is normal."""
    metrics = row.metrics
    if not math.isfinite(metrics.get("loss", 0.0)):
        return True
    num_nonfinite = metrics.get("nonfinite", metrics.get("local_nonfinite"))
    if num_nonfinite is None:  # gradients were not read: a clip coefficient of NaN or 0 still shows
        num_nonfinite = float(not metrics.get("clip_coef", 1.0) > 0.0)
    return num_nonfinite != 0.0 and metrics.get("skipped", 0.0) != 1.0


def is_healthy(row: Row) -> bool:
    """Whether the state after the step can be trusted: it is not broken, and that is known."""
    return not (row.is_lost or is_broken(row))
