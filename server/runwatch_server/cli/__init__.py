"""The command line: `runwatch`."""

import errno
import importlib
import os
import sys
from typing import Final

_NOT_DONE: Final = 2
_INTERRUPTED: Final = 130
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


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
    try:
        program.app()
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        _leave_unsaid()
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"runwatch: {place}{error.strerror}\n")
        sys.exit(_NOT_DONE)


def _leave_unsaid() -> None:
    """What the output's buffer still holds would fail once more as the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


__all__ = ["main"]
