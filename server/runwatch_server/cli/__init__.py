"""The command line: `runwatch`."""

import errno
import importlib
import os
import sys
from typing import Final

from runwatch.extras import pip_install

_NOT_DONE: Final = 2
_INTERRUPTED: Final = 130
_OF_TRAINERS: Final = ("sync", "doctor", "replay")
"""Commands that go without the service's part: each is a program of the trainer's side, too."""
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """The program. Where only the trainer's side is installed, that has its own commands, and of
    the others it is said kindly what is missing."""
    try:
        program = importlib.import_module("runwatch_server.cli.app")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0].startswith("runwatch"):
            raise
        if sys.argv[1:2] and sys.argv[1] in _OF_TRAINERS:
            module = f"runwatch_hooks.{sys.argv[1]}"
            os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[2:]])
        sys.stderr.write(
            f"runwatch: the service's part is not installed ({error.name} is missing).\n"
            f"Install it with:  {pip_install('server')}\n"
            f"Without it there are `runwatch {'`, `runwatch '.join(_OF_TRAINERS)}`.\n"
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
