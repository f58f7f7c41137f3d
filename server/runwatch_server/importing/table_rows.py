"""Splits a text table into its rows: at commas, semicolons or tabs, or at the blanks that align its
columns."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.numbers import number_of

PlacedRow = tuple[int, list[str]]
"""The cells of a row, with the number of the line where it ends."""

_COMMENT: Final = "#"
_DECIMAL_COMMA: Final = re.compile(r"(\s*[-+]?\d+),(\d+(?:[eE][-+]?\d+)?\s*)\Z")


def rows_of(lines: Sequence[str]) -> Iterator[PlacedRow]:
    """The rows that are not empty, the names of the columns first. Raises LogError."""
    first = next((line for _, line in _told(lines) if not line.startswith(_COMMENT)), "")
    delimiter = max(",;\t", key=first.count)
    if delimiter not in first and (aligned := _aligned(lines)):
        return iter(aligned)
    rows = _separated(lines, delimiter)
    above = _comment_above(lines)
    if above is None:
        return rows
    place, comment = above
    return _headed(rows, (place, [cell.strip() for cell in comment.split(delimiter)]))


def _told(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    return ((place, line) for place, line in enumerate(lines, start=1) if line.strip())


def _separated(lines: Sequence[str], delimiter: str) -> Iterator[PlacedRow]:
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row) and not row[0].startswith(_COMMENT):
                # Where semicolons are between the cells, commas are within the numbers.
                yield reader.line_num, _with_points(row) if delimiter == ";" else row
    except csv.Error as error:
        raise LogError(f"line {reader.line_num}", f"found no row of a table: {error}") from error


def _with_points(row: list[str]) -> list[str]:
    return [
        f"{number[1]}.{number[2]}" if (number := _DECIMAL_COMMA.match(cell)) else cell
        for cell in row
    ]


def _aligned(lines: Sequence[str]) -> list[PlacedRow]:
    """The rows of columns that blanks align, below their names; nothing if it is no such table. A
    killed job may have cut off the last row."""
    rows: list[PlacedRow] = []
    for place, line in _told(lines):
        if line.startswith(_COMMENT):
            continue
        if rows and len(rows[-1][1]) != len(rows[0][1]):  # of a long printed log, seen at once
            return []
        rows.append((place, line.split()))
    above = _comment_above(lines)
    if above is not None:
        rows = list(_headed(iter(rows), (above[0], above[1].split())))
    return rows if len(rows) > 1 and len(rows[0][1]) > 1 else []


def _comment_above(lines: Sequence[str]) -> tuple[int, str] | None:
    """The last comment before the first row, without its sign: numpy writes the names so."""
    above = None
    for place, line in _told(lines):
        if not line.startswith(_COMMENT):
            return above
        above = (place, line.lstrip(_COMMENT).strip())
    return None


def _headed(rows: Iterator[PlacedRow], header: PlacedRow) -> Iterator[PlacedRow]:
    """The rows below a header, which a table with names of its own does not need."""
    first = next(rows, None)
    if first is None:
        return iter(())
    is_needed = len(header[1]) == len(first[1]) and all(
        number_of(cell) is not None for cell in first[1]
    )
    return chain([header, first] if is_needed else [first], rows)
