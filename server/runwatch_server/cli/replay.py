"""`runwatch replay BUNDLE`: runs the step of a diagnostic bundle again."""

import importlib.util
import subprocess
import sys
from typing import Final

import typer

from runwatch.extras import pip_install

_NO_TORCH: Final = (
    "runwatch replay: it needs the trainer's PyTorch, which is not installed here:"
    f" {pip_install('torch')}"
)


def replay(context: typer.Context) -> None:
    """Run a bundle's step again and name the module and operation that broke it.

    The arguments are those of `python -m runwatch_hooks.replay`, which needs the trainer's torch.
    """
    if importlib.util.find_spec("torch") is None:
        typer.echo(_NO_TORCH, err=True)
        raise typer.Exit(2)
    command = [sys.executable, "-P", "-m", "runwatch_hooks.replay", *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
