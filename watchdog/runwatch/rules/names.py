"""The series that a rule can read without anyone having announced them."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from runwatch.series import GUARDED_STATS, METRICS, Source

STEP: Final = "step"
"""The number of the step, as a series that every row records."""

_OF_ANOTHER: Final = re.compile(
    r"(lr|gpu_mem|gpu_temp|gpu_util|gpu_throttled|gpu_ecc_errors)_[0-9]{1,3}"
)
"""Of another parameter group, or another device of the rank, than the first."""


def is_metric(name: str, announced: frozenset[str]) -> bool:
    """Whether a name is a metric's: one of the hook's, or one that the user announced."""
    return (
        name in METRICS or name == STEP or name in announced
        or _OF_ANOTHER.fullmatch(name) is not None
    )  # fmt: skip


def comes_from_gradients(names: Iterable[str]) -> bool:
    """Whether any of these stats is made in the backward pass, which runs from the loss to the
    first layer: what breaks there breaks all layers before it."""
    return any(
        name in GUARDED_STATS and GUARDED_STATS[name].source is Source.GRADIENT for name in names
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """` (nearest: ...)` with the known name that is most like this one, or nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""
