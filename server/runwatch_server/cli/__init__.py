"""The command line: `runwatch`."""

import importlib
import sys
from typing import Final

_NOT_DONE: Final = 2
_INTERRUPTED: Final = 130


def main() -> None:
    """The program. Says kindly what is missing where only the trainer's side is installed."""
    try:
        program = importlib.import_module("runwatch_server.cli.app")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0].startswith("runwatch"):
            raise
        sys.stderr.write(
            f"runwatch: the service's part is not installed ({error.name} is missing).\n"
            "Install it with:  pip install 'runwatch[server]'\n"
            "A trainer needs no command: see `from runwatch_hooks import attach`.\n"
        )
        sys.exit(_NOT_DONE)
    except KeyboardInterrupt:  # it takes a second or more to read all that the service is made of
        sys.exit(_INTERRUPTED)
    program.app()


__all__ = ["main"]
