"""Functions across the layers of a row: the greatest, the median, and each layer's rank.

NaN counts as not recorded here: one broken layer must not blind the others.

Legend: U rows, L layers; `usable_UL` tells which values are recorded and not NaN.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from runwatch.rules.windows import Bools, Floats


def max_layers(values_UL: Floats, usable_UL: Bools) -> Floats:
    """(U,) -inf where no layer is usable."""
    return np.asarray(np.where(usable_UL, values_UL, -np.inf).max(axis=1))


def median_layers(values_UL: Floats, usable_UL: Bools) -> Floats:
    """(U,) NaN where no layer is usable."""
    return np.array(
        [np.median(row[usable]) if usable.any() else np.nan
         for row, usable in zip(values_UL, usable_UL, strict=True)]
    )  # fmt: skip


def rank_of(values_UL: Floats, usable_UL: Bools) -> Floats:
    """(U, L) each layer's place from the greatest down, from 1; of equal ones the first is before.
    The rank of a layer that is not usable means nothing."""
    descending_UL = np.where(usable_UL, -values_UL, np.inf)
    order_UL = np.argsort(descending_UL, axis=1, kind="stable")
    return 1 + np.argsort(order_UL, axis=1, kind="stable").astype(np.float64)


OF_ROW: Final[Mapping[str, Callable[[Floats, Bools], Floats]]] = {
    "max_layers": max_layers,
    "median_layers": median_layers,
}
"""Functions that say one number of all layers of a row."""
