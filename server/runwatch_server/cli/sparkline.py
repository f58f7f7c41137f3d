"""A curve in one line of characters."""

import math
from collections.abc import Sequence
from typing import Final

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.-=+*#@"
_BROKEN: Final = {False: "╳", True: "!"}


def sparkline(values: Sequence[float | None], *, only_ascii: bool = False) -> str:
    """One character per value, from the lowest to the highest finite one; None is a gap.

    NaN and infinities have characters of their own, so that none looks like a small number.
    """
    ramp = _ASCII if only_ascii else _BLOCKS
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(
        " "
        if value is None
        else _BROKEN[only_ascii]
        if not math.isfinite(value)
        else ramp[_place(value, low, high, len(ramp))]
        for value in values
    )


def _place(value: float, low: float, high: float, num_places: int) -> int:
    """The values are halved first: the difference of two very large floats would overflow."""
    width = high / 2 - low / 2
    if not width > 0:
        return 0
    return min(int((value / 2 - low / 2) / width * num_places), num_places - 1)
