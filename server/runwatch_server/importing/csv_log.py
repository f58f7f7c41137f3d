"""Reads text tables: plain CSV with any order of columns, and Lightning's metrics.csv."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.long_table import columns_of, read_long
from runwatch_server.importing.numbers import (
    is_absent_text,
    number_of,
    unix_time,
    whole_step,
)
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import check_number, find_step, find_time, map_names
from runwatch_server.importing.table_rows import rows_of
from runwatch_server.importing.wandb_chart import chart_of, read_chart

_LINE_ENDS: Final = ("\n", "\r")


@dataclass(slots=True)
class _Cells:
    """Collects cells that are not numbers, by column. A column of words is left out, but a word
    among the numbers of a series that rules know is an error."""

    known: Set[str]
    with_numbers: set[str] = field(default_factory=set[str])
    first_words: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Place and text of the first word in each column."""

    def read(self, name: str, text: str, place: str) -> float | None:
        number = number_of(text)
        if number is not None:
            self.with_numbers.add(name)
        elif name not in self.first_words and not is_absent_text(text):
            self.first_words[name] = (place, text)
        return number

    def notes(self) -> list[str]:
        """Raises LogError for a word among the numbers of a known series."""
        notes: list[str] = []
        for name, (place, text) in self.first_words.items():
            found = f"{name}: found {text[:40]!r}"
            if name in self.known and name in self.with_numbers:
                raise LogError(place, f"{found}, wanted a number, or nothing")
            notes.append(f"{place}, {found}: where it holds no numbers it is left out")
        return notes


def read_csv(text: str) -> RawLog:
    """The log in a text whose first line has the names; an incomplete last row is left out. Raises
    LogError."""
    # Not str.splitlines, which also ends lines at U+2028 and others that a cell may contain.
    lines = list(io.StringIO(text, newline=""))
    if not lines or lines[-1].endswith(_LINE_ENDS) or not lines[-1].strip():
        return _read(lines)
    last = f"line {len(lines)}"
    try:
        log = _read(lines)
    except LogError:
        log = _read(lines[:-1])
        if not any(entry.values for entry in log.entries):
            raise
        return replace(log, notes=(*log.notes, f"{last} is cut off: left out"))
    return replace(log, notes=(*log.notes, f"{last} has no end: its last number may be cut off"))


def _read(lines: Sequence[str]) -> RawLog:
    rows = rows_of(lines)
    header = next(rows, None)
    if header is None:
        raise LogError("line 1", "found nothing, wanted the names of columns")
    names = _names(header[1])
    if (long := columns_of(names)) is not None:
        return read_long(_placed(rows, header[1]), long)
    if (chart := chart_of(names)) is not None:
        return read_chart(_placed(rows, header[1]), chart)
    step, time = find_step(names), find_time(names)
    series = [(place, name) for place, name in enumerate(names) if name not in ("", step, time)]
    cells = _Cells(map_names([name for _, name in series]).known_series)
    entries: list[Entry] = []
    for place, row in _placed(rows, header[1]):
        values: dict[str, float] = {}
        for column, name in series:
            if row[column] and (number := cells.read(name, row[column], place)) is not None:
                values[name] = number
        entries.append(
            Entry(
                place,
                _step(row[names.index(step)], place) if step is not None else None,
                unix_time(number_of(row[names.index(time)])) if time is not None else None,
                values,
            )
        )
    return RawLog(entries, tuple(cells.notes()))


def _placed(
    rows: Iterator[tuple[int, list[str]]], header: list[str]
) -> Iterator[tuple[str, list[str]]]:
    """The rows below the header, each with its place. Raises LogError for a row of another
    width."""
    for line, row in rows:
        place = f"line {line}"
        if row == header:  # a restarted job appends its header again
            continue
        _check_width(row, header, place)
        yield place, row


def _names(header: list[str]) -> list[str]:
    names = [name.strip() for name in header]
    check_number(names, "line 1")
    if all(not name or number_of(name) is not None for name in names):
        raise LogError("line 1", "found numbers, wanted the names of columns")
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        raise LogError("line 1", f"found the column {twice!r} twice, wanted it once")
    return names


def _check_width(row: list[str], names: list[str], place: str) -> None:
    while len(row) > len(names) and not row[-1].strip():
        row.pop()
    if len(row) != len(names):
        raise LogError(place, f"found {len(row)} cells, wanted {len(names)} as in the header")


def _step(text: str, place: str) -> int | None:
    if is_absent_text(text):
        return None
    number = number_of(text)
    if number is None:
        raise LogError(place, f"step: found {text[:40]!r}, wanted a whole number")
    return whole_step(number, place)
