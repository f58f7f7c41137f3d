"""Parses the tables that Stable-Baselines and others print: a name and its value per line, between
bars."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from runwatch_server.importing.numbers import number_of
from runwatch_server.importing.progress_lines import ProgressLine, step_of

_CELL: Final = re.compile(r"\|\s*(?P<name>[^|]{1,80}?)\s*\|\s*(?P<value>[^|]{1,40}?)\s*\|")


def boxes(lines: list[str]) -> Iterator[tuple[int, ProgressLine]]:
    """The tables in a text, of which each is a row, with the index of its last line."""
    cells: list[ProgressLine] = []
    for index, (line, following) in enumerate(pairwise([*lines, ""])):
        match = _CELL.fullmatch(line.strip())
        if match is not None and (cell := _cell(match["name"], match["value"])) is not None:
            cells.append(cell)
        if cells and not following.lstrip().startswith("|"):
            yield index, _joined(cells)
            cells = []


def _cell(name: str, text: str) -> ProgressLine | None:
    """What a line of a table says; None if its value is no number."""
    value = number_of(text.strip())
    if value is None:
        return None
    step = step_of(name, value)
    return ProgressLine({name: value} if step is None else {}, None, step, None)


def _joined(cells: list[ProgressLine]) -> ProgressLine:
    values = {name: value for cell in cells for name, value in cell.values.items()}
    step = next((cell.step for cell in cells if cell.step is not None), None)
    return ProgressLine(values, None, step, None)
