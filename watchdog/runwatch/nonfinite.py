"""NaN, infinity and 'not recorded' on their way from the tensor to the screen.

Non-finite values are facts and travel as themselves. 'Not recorded' is not one of them: in a
matrix it is one reserved quiet NaN, told apart by its bits (as Prometheus does for a stale
series); in JSON it is null, while non-finite values are the strings "NaN", "+Inf", "-Inf".
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ABSENT_BITS_32: Final = np.uint32(0x7FC04E52)  # a quiet NaN whose payload spells "NR"
_ABSENT_BITS_64: Final = np.uint64(0x7FF809CA40000000)  # the same NaN, widened by the processor

ABSENT_32: Final = _ABSENT_BITS_32.view(np.float32)
ABSENT_64: Final = _ABSENT_BITS_64.view(np.float64)

JsonNumber = float | int | str | None
"""A value in JSON: a number, "NaN", "+Inf", "-Inf", or null for 'not recorded'."""

_NAMES: Final = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}


def is_absent(values: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a float32 or float64 array of any shape holds 'not recorded'."""
    if values.dtype == np.float32:
        return np.asarray(values.view(np.uint32) == _ABSENT_BITS_32)
    return np.asarray(values.view(np.uint64) == _ABSENT_BITS_64)


def to_json(value: float, *, absent: bool = False) -> JsonNumber:
    """One value as JSON can carry it."""
    if absent:
        return None
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def from_json(number: object) -> float:
    """The value of one JSON number; null gives ABSENT_64.

    Raises ValueError, naming what was found, for anything that is no `JsonNumber`.
    """
    if number is None:
        return float(ABSENT_64)
    if isinstance(number, str) and number in _NAMES:
        return _NAMES[number]
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return float(number)
    raise ValueError(f'found {number!r}, wanted a number, "NaN", "+Inf", "-Inf" or null')


def to_json_list(values: NDArray[np.float32] | NDArray[np.float64]) -> list[JsonNumber]:
    """A one-dimensional array as JSON can carry it."""
    finite = np.isfinite(values)
    numbers: list[JsonNumber] = values.tolist()
    if not finite.all():
        absent = is_absent(values)
        for index in np.flatnonzero(~finite):
            numbers[index] = to_json(float(values[index]), absent=bool(absent[index]))
    return numbers
