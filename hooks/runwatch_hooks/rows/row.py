"""The record of one step, as it is handed to the uplink."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runwatch.histograms import Histograms
from runwatch.layouts import Layout
from runwatch_hooks.statistics.sharing import Sharing


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
