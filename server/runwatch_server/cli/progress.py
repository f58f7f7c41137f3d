"""How far a long command is, on stderr, so that stdout stays for what it found."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def new_progress(console: Console) -> Progress:
    """A bar that goes away when it is done; nothing where stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def tell_unreadable(console: Console, path: Path, error: Exception) -> None:
    """A file of many that cannot be read: the others go on."""
    text = f"{path}: {error}"
    console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
