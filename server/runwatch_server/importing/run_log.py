"""A run as a log describes it: the common form in which every format is read, judged and
imported."""

from collections.abc import Mapping
from dataclasses import dataclass

from runwatch.rules import Rows


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of one line or record of a log, under the log's own names."""

    place: str
    """Its place in the file, such as `line 7`."""
    step: int | None
    """None if the record has no step: it belongs to the step before it."""
    at: float | None
    """Unix seconds; None if the log has no times."""
    values: Mapping[str, float]
    """Only what was recorded; NaN and infinities are values."""


@dataclass(frozen=True, slots=True)
class RawLog:
    """A log as its format gives it, before names are mapped and steps are put in order."""

    entries: list[Entry]
    notes: tuple[str, ...] = ()
    epoch_length: int | None = None
    """Steps per epoch, if the log says how many there are and counts them within each epoch."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """Rows ready to be judged, and notes on how they were made from the file."""

    name: str
    stretches: tuple[Rows, ...]
    """In the order in which they ran; each belongs to one attempt and one segment."""
    notes: tuple[str, ...]
    """What was mapped, dropped or assumed, one sentence each."""
    has_times: bool
    """Whether `times` are the log's; otherwise a row counts as a second."""

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for rows in self.stretches)
