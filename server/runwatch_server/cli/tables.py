"""Lists for a terminal, 80 columns wide at least, and for pipes, which get every row whole."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runwatch.terminal_text import readable_line
from runwatch_server.cli.output import OurConsole

_IDS: Final = ("id", "run_id")
"""Columns that are never cut or wrapped: they are there to be copied."""
_SHORTEST: Final = 8
"""Letters of a ULID; those of two that were made in different seconds differ."""
_MOMENT: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d+)?Z")
_FOLDED: Final = ("name", "project")
"""Columns that give way on a narrow screen."""
_PIPE_WIDTH: Final = 10_000
"""Width, in characters, without a terminal; a table takes as much as its cells need."""


def is_narrow(console: Console) -> bool:
    """Whether the list is read on a screen, whose width it must fit, and not by a program."""
    return console.is_terminal or "COLUMNS" in os.environ


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The beginnings of ids, as short as they differ in the list."""
    listed = set(ids)
    longest = max(map(len, listed), default=0)
    size = next(
        (
            size
            for size in range(_SHORTEST, longest)
            if len({one[:size] for one in listed}) == len(listed)
        ),
        longest,
    )
    return {one: one[:size] for one in listed}


def print_list(
    columns: Sequence[str], rows: Iterable[Sequence[object]], console: Console | None = None
) -> None:
    """Rows whose first value is an id: a table that fits a screen, or for pipes a whole one."""
    console = console or OurConsole()
    if not is_narrow(console):
        print_table(columns, rows, console)
        return
    known = list(rows)
    ids = short_ids(str(row[0]) for row in known)
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column not in _FOLDED, overflow="fold")
    for first, *rest in known:
        table.add_row(ids[str(first)], *(Text(_brief(value)) for value in rest))
    console.print(table)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], console: Console | None = None
) -> None:
    """Rows of values under the names of their columns. Texts are not read as markup."""
    console = console or OurConsole()
    table = Table()
    for column in columns:
        table.add_column(column, no_wrap=column in _IDS, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)


def _shown(value: object) -> str:
    """The value in one line, times to the second; `--json` gives the full values."""
    text = "-" if value is None else str(value)
    moment = _MOMENT.fullmatch(text)
    return f"{moment[1]}Z" if moment is not None else readable_line(text)


def _brief(value: object) -> str:
    """The same, times to the minute of this year."""
    text = _shown(value)
    return f"{text[5:10]} {text[11:16]}Z" if _MOMENT.fullmatch(text) else text
