"""`runwatch sync DIR...`: sends the spools of trainers that could not reach the service."""

import subprocess
import sys

import typer


def sync(context: typer.Context) -> None:
    """Send spool directories to a service; takes the arguments of `python -m runwatch_hooks.sync`.

    Runs in a process of its own, because the hook and the service share only the core.
    """
    command = [sys.executable, "-P", "-m", "runwatch_hooks.sync", *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
