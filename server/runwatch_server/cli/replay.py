"""`runwatch replay BUNDLE`: the step of a diagnostic bundle, run again."""

import subprocess
import sys

import typer


def replay(context: typer.Context) -> None:
    """Run a bundle's step again and name the module and operation that broke it.

    The arguments are those of `python -m runwatch_hooks.replay`, which wants the trainer's torch.
    """
    command = [sys.executable, "-m", "runwatch_hooks.replay", *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
