"""The machine, process and user of a trainer, by which its runs can be found."""

import getpass
import os
import platform
import socket
import time
from contextlib import suppress

from runwatch.frames import Event, Scalar


def describe_machine(job: str | None = None) -> dict[str, Scalar]:
    """Host name, process id, Python version and user name, and the job if there is one. A user
    without an entry in the password database, as in a container, is left out."""
    facts: dict[str, Scalar] = {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
    }
    if job is not None:
        facts["job"] = job
    with suppress(KeyError, OSError, ImportError):  # no entry in the password database, or none
        facts["user"] = getpass.getuser()
    return facts


def host_event(step: int) -> Event:
    """Tells where one rank of several runs, before the given step: an attempt holds only the facts
    of the rank that opened it."""
    detail: dict[str, Scalar | list[str]] = {"hostname": socket.gethostname(), "pid": os.getpid()}
    return Event(step, "host", time.time(), detail)
