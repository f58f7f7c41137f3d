"""Determines how finely a log tells its losses from the digits of its numbers.

A loss that is printed to four digits, or computed in bfloat16, can change and still be the same
number. Rules about a frozen loss read `loss_resolution` and `val_loss_resolution`, the distance
from one such number to the next, which are recorded beside each loss that a log rounds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor, isfinite, log10
from typing import Final, Protocol

from runwatch.half_precision import NUM_BITS, significant_bits, spacing
from runwatch_server.importing.run_log import Entry

OF_LOSSES: Final[Mapping[str, str]] = {
    "loss": "loss_resolution",
    "val_loss": "val_loss_resolution",
}
_MOST_DIGITS: Final = 7
"""More digits mean an unrounded float."""
_LEAST_VALUES: Final = 8
"""Among fewer values, all may end in zeros by chance, which a parsed number no longer shows."""
_MOST_MAGNITUDE: Final = 400


def note_resolution(
    entries: list[Entry], names: Mapping[str, str]
) -> tuple[list[Entry], dict[str, str], tuple[str, ...]]:
    """The entries with the resolution of their losses, what was added under our names, and notes of
    why.

    `names` are our metrics by the log's names.
    """
    added: dict[str, str] = {}
    notes: list[str] = []
    for theirs, ours in names.items():
        told = OF_LOSSES.get(ours)
        if told is None or told in names:
            continue
        values = [entry.values[theirs] for entry in entries if theirs in entry.values]
        rounded = _coarsest(values)
        if rounded is None:
            continue
        entries = [_with(entry, theirs, told, rounded) for entry in entries]
        added[told] = told
        notes.append(f"{theirs} is {rounded}: {told}")
    return entries, added, tuple(notes)


class _Rounded(Protocol):
    def resolution(self, value: float) -> float: ...


def _coarsest(values: list[float]) -> _Rounded | None:
    """How a series is rounded: a loss in bfloat16 such as 2.3125 has few digits, too."""
    found: list[_Rounded | None] = [_Printed.of(values), _Half.of(values)]
    largest = max(filter(isfinite, values), key=abs, default=0.0)
    rounded = (one for one in found if one is not None)
    return max(rounded, key=lambda one: one.resolution(largest), default=None)


@dataclass(frozen=True, slots=True)
class _Half:
    """A series in half precision, written with all the digits of a wider number."""

    name: str

    @classmethod
    def of(cls, values: Iterable[float]) -> "_Half | None":
        """None if a series is not in half precision, or too short to tell."""
        finite = [value for value in values if value and isfinite(value)]
        if len(finite) < _LEAST_VALUES:
            return None
        least = max(map(significant_bits, finite))
        return next((cls(name) for name, bits in NUM_BITS.items() if least <= bits), None)

    def __str__(self) -> str:
        return f"in {self.name}"

    def resolution(self, value: float) -> float:
        return spacing(value, NUM_BITS[self.name])


@dataclass(frozen=True, slots=True)
class _Printed:
    """The largest number of decimals of a rounded series."""

    decimals: int
    of_magnitude: Mapping[int, int]
    """The same for each power of ten with enough values: `1.23` and `1.23e-05` have the same number
    of digits but different decimals."""

    @classmethod
    def of(cls, values: Iterable[float]) -> "_Printed | None":
        """None if a series is not rounded, or too short to tell."""
        num_values: Counter[int] = Counter()
        decimals: dict[int, int] = {}
        for value in values:
            if not isfinite(value):
                continue
            num_digits, num_decimals = _digits_of(value)
            if num_digits > _MOST_DIGITS:
                return None
            magnitude = _magnitude(value)
            num_values[magnitude] += 1
            decimals[magnitude] = max(num_decimals, decimals.get(magnitude, 0))
        if num_values.total() < _LEAST_VALUES:
            return None
        of_magnitude = {one: decimals[one] for one in decimals if num_values[one] >= _LEAST_VALUES}
        return cls(max(decimals.values()), of_magnitude)

    def __str__(self) -> str:
        return f"printed to {self.decimals} decimals"

    def resolution(self, value: float) -> float:
        return 10.0 ** -self.of_magnitude.get(_magnitude(value), self.decimals)


def _with(entry: Entry, name: str, told: str, rounded: _Rounded) -> Entry:
    value = entry.values.get(name)
    if value is None or not isfinite(value):
        return entry
    return replace(entry, values={**entry.values, told: rounded.resolution(value)})


def _magnitude(value: float) -> int:
    """The power of ten; that of 0 is beyond all others."""
    return floor(log10(abs(value))) if value else -_MOST_MAGNITUDE


def _digits_of(value: float) -> tuple[int, int]:
    """Significant digits and decimals of the shortest text for a number."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    decimals = len(fraction) - int(exponent or 0)
    return len((whole + fraction).strip("0")), max(decimals, 0)
