"""Tables for a terminal, and for pipes, where the next command needs whole ids."""

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
_MOMENT: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d+)?Z")
_PIPE_WIDTH: Final = 10_000
"""Width, in characters, without a terminal; a table takes as much as its cells need."""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], console: Console | None = None
) -> None:
    """Rows of values under the names of their columns. Texts are not read as markup."""
    console = console or OurConsole()
    table = Table()
    for column in columns:
        table.add_column(column, no_wrap=column in _IDS, overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if value is None else _cell(str(value))) for value in row))
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)


def _cell(text: str) -> str:
    """The value in one line, times to the second; `--json` gives the full values."""
    moment = _MOMENT.fullmatch(text)
    return f"{moment[1]}Z" if moment is not None else readable_line(text)
