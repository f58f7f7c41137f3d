"""The record of one step, as it is handed to the transport."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runwatch.histograms import Histograms
from runwatch.layouts import Layout
from runwatch_hooks.measuring.sharing import Sharing


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Metrics and layer statistics of one step.

    A step may have several rows: a number logged later (a validation loss) has a row of its own,
    with the number of the step that it belongs to.
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
