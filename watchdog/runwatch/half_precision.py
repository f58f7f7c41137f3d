"""Numbers in half precision, recognised by their bits: such a number may have passed through wider
types (`loss.item()`, a log of many digits), and is as coarse as it was."""

from collections.abc import Mapping
from math import frexp
from typing import Final

NUM_BITS: Final[Mapping[str, int]] = {"bfloat16": 8, "float16": 11}
"""Significant bits of a number of each type."""


def significant_bits(value: float) -> int:
    """How many bits a finite number has from its first to its last 1; 0 for 0."""
    numerator = abs(value).as_integer_ratio()[0]
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


def spacing(value: float, num_bits: int) -> float:
    """The distance from a finite number to the next of so many significant bits."""
    return float(2.0 ** (frexp(value)[1] - num_bits))
