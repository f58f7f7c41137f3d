"""`runwatch sync DIR...`: spools of trainers that could not reach the service."""

import subprocess
import sys

import typer


def sync(context: typer.Context) -> None:
    """Bring spool directories in; the arguments are those of `python -m runwatch_hooks.sync`.

    A process of its own, because the trainer's side and the service's share no code but the core.
    """
    command = [sys.executable, "-m", "runwatch_hooks.sync", *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
