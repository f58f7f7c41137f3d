"""Parses numbers as logs write them."""

import math
import re
from typing import Final

from runwatch.frames import MAX_STEP
from runwatch_server.importing.errors import LogError

_TRUTHS: Final = {"true": 1.0, "false": 0.0}
_ABSENT: Final = frozenset(("", "none", "null", "n/a", "na", "-"))
_TENSOR: Final = re.compile(r"tensor\(([^,()]+)(?:,[^()]*)?\)")
"""A tensor as `print(loss)` prints it."""


def is_absent_text(text: str) -> bool:
    """Whether a cell says that nothing was recorded."""
    return text.strip().lower() in _ABSENT


def number_of(text: str) -> float | None:
    """The number in a text, NaN and infinities included; None if it holds none."""
    try:
        # Python reads 1_000 as a number; in a log it is a name.
        return float(text) if "_" not in text else None
    except ValueError:
        pass
    match = _TENSOR.fullmatch(text.strip())
    if match is not None:
        return number_of(match[1])
    return _TRUTHS.get(text.strip().lower())


def value_of(found: object) -> float | None:
    """The number in a JSON value; None if it is something else."""
    if isinstance(found, bool | int | float):
        try:
            return float(found)
        except OverflowError:  # JSON's integers are unlimited
            return math.inf if found > 0 else -math.inf
    return number_of(found) if isinstance(found, str) else None


def whole_step(value: float, place: str) -> int:
    """A step. Raises LogError."""
    if not (0 <= value <= MAX_STEP and value == int(value)):
        raise LogError(place, f"step: found {value:g}, wanted a whole number from 0")
    return int(value)


def unix_time(value: float | None) -> float | None:
    """Seconds since 1970; None if the value is no wall-clock time but, for example, seconds since
    the start."""
    if value is None or not 1e8 <= value <= 1e13:
        return None
    return value / 1000 if value > 1e11 else value  # some write milliseconds
