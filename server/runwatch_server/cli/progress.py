"""Progress of long commands, on stderr, so that stdout has only the results."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def new_progress(console: Console) -> Progress:
    """A bar that goes away when it is done; none if stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def warn_unreadable(console: Console, path: Path, error: Exception) -> None:
    """Reports a file that cannot be read, while the others go on."""
    text = f"{path}: {error}"
    console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
