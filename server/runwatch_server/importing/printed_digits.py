"""Determines how finely a log prints its losses from the digits of its numbers.

A loss that is printed to four digits can change and still print as the same number. Rules about a
frozen loss read `loss_resolution` and `val_loss_resolution`, the distance from one printable number
to the next, which are recorded beside each loss that a log rounds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor, isfinite, log10
from typing import Final

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
        printed = _Printed.of(entry.values[theirs] for entry in entries if theirs in entry.values)
        if printed is None:
            continue
        entries = [_with(entry, theirs, told, printed) for entry in entries]
        added[told] = told
        notes.append(f"{theirs} is printed to {printed.decimals} decimals: {told}")
    return entries, added, tuple(notes)


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

    def resolution(self, value: float) -> float:
        return 10.0 ** -self.of_magnitude.get(_magnitude(value), self.decimals)


def _with(entry: Entry, name: str, told: str, printed: _Printed) -> Entry:
    value = entry.values.get(name)
    if value is None or not isfinite(value):
        return entry
    return replace(entry, values={**entry.values, told: printed.resolution(value)})


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
