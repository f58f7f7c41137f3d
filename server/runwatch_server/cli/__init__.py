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
"""Commands that work without the service's package: each is also a program of the hook's."""
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """The program. If only the hook is installed, its own commands work, and the others say what is
    missing."""
    try:
        program = importlib.import_module("runwatch_server.cli.app")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0].startswith("runwatch"):
            raise
        if sys.argv[1:2] and sys.argv[1] in _OF_TRAINERS:
            module = f"runwatch_hooks.{sys.argv[1]}"
            os.execv(sys.executable, [sys.executable, "-P", "-m", module, *sys.argv[2:]])
        sys.stderr.write(
            f"runwatch: the service is not installed ({error.name} is missing).\n"
            f"Install it with:  {pip_install('server')}\n"
            f"These commands work without it: `runwatch {'`, `runwatch '.join(_OF_TRAINERS)}`.\n"
            "A trainer needs no command: see `from runwatch_hooks import attach`.\n"
        )
        sys.exit(_NOT_DONE)
    except KeyboardInterrupt:  # importing the service takes a second or more
        sys.exit(_INTERRUPTED)
    try:
        program.app()
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        _discard_unwritten_output()
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"runwatch: {place}{error.strerror}\n")
        sys.exit(_NOT_DONE)


def _discard_unwritten_output() -> None:
    """Otherwise what is left in the output's buffer would fail again at interpreter exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


__all__ = ["main"]
