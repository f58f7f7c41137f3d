"""Where a trainer runs, and as whom: what its run is found by."""

import getpass
import os
import platform
import socket
from contextlib import suppress

from runwatch.frames import Scalar


def describe_machine() -> dict[str, Scalar]:
    """Host, process, interpreter and user; a user without a name (a container's) is left out."""
    facts: dict[str, Scalar] = {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
    }
    with suppress(KeyError, OSError, ImportError):  # no entry in the password database, or none
        facts["user"] = getpass.getuser()
    return facts
