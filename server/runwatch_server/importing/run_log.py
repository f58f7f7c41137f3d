"""A run as a log tells it: the one form in which every format is read, judged and imported."""

from collections.abc import Mapping
from dataclasses import dataclass

from runwatch.rules import Rows


@dataclass(frozen=True, slots=True)
class Entry:
    """What one line or record of a log says, under the log's own names."""

    place: str
    """Where it stands in the file, such as `line 7`."""
    step: int | None
    """None where the record does not say: it belongs to the step before it."""
    at: float | None
    """Unix seconds; None where the log has no clock."""
    values: Mapping[str, float]
    """Only what was recorded; NaN and the infinities are values."""


@dataclass(frozen=True, slots=True)
class RawLog:
    """A log as its format tells it, before names are mapped and steps are put in order."""

    entries: list[Entry]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLog:
    """Rows ready to be judged, and what was done to the file's words to get them."""

    name: str
    stretches: tuple[Rows, ...]
    """In the order in which they ran; each is of one attempt and one segment."""
    notes: tuple[str, ...]
    """What was mapped, dropped or assumed, a sentence each."""
    has_times: bool
    """Whether `times` are the log's; else a row counts as a second."""

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for rows in self.stretches)
