"""One step as the trainer saw it, on its way to the transport."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runwatch.histograms import Histograms
from runwatch.layouts import Layout
from runwatch_hooks.measuring.sharing import Sharing


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What is known about one step.

    A step may have several rows: a number that is logged later (a validation loss) travels in
    a row of its own, under the step it belongs to.
    """

    step: int
    segment: int
    at: float
    """Unix seconds at the end of the step, by the trainer's clock."""
    metrics: Mapping[str, float]
    """Run metrics by name; may be NaN or infinite. A metric not recorded is left out."""
    layout: Layout | None = None
    """Names the columns of `stats`; None where there are none."""
    stats: NDArray[np.float32] | None = None
    """(C,), stat by stat; 'not recorded' is `runwatch.nonfinite.ABSENT_32`. Owned by the row."""
    sharing: Sharing | None = None
    """Whose parts the stats are of, on the way to being joined; None: of whole tensors."""
    histograms: tuple[Histograms, ...] = ()
    urgent: bool = False
    """Worth sending at once: something is not finite, or has jumped."""
