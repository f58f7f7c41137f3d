"""The machine, process and user of a trainer, by which its runs can be found."""

import getpass
import os
import platform
import socket
from contextlib import suppress

from runwatch.frames import Scalar


def describe_machine() -> dict[str, Scalar]:
    """Host name, process id, Python version and user name. A user without an entry in the password
    database, as in a container, is left out."""
    facts: dict[str, Scalar] = {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
    }
    with suppress(KeyError, OSError, ImportError):  # no entry in the password database, or none
        facts["user"] = getpass.getuser()
    return facts
