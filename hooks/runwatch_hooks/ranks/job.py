"""The run id for a job under torchrun, if the user has not given one.

After a failure torchrun restarts the ranks but stays alive itself, so its process identifies the
job. (Its store does not: in torch 2.13 each restart may get another one.)
"""

import hashlib
import os
import socket
from pathlib import Path

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId


def run_of_job(elastic_id: str, number: int, parent: int | None = None) -> RunId | None:
    """The id of the `number`th run watched by the children of this launcher.

    `elastic_id` is torchrun's name for the job. It is not enough by itself, because many users give
    every job the same. None if the parent process is unknown (it is read from Linux's /proc).
    """
    parent = os.getppid() if parent is None else parent
    began_ms = _began_ms(parent)
    if began_ms is None:
        return None
    facts = (socket.gethostname(), elastic_id, parent, began_ms, number)
    return RunId(ulid(began_ms, hashlib.sha256(repr(facts).encode()).digest()[:10]))


def _began_ms(process: int) -> int | None:
    """Start time of a process in Unix milliseconds; the same value at each call."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/stat").read_text().partition("btime ")[2].split()[0]
    except (OSError, IndexError):
        return None
    ticks = int(facts[19])  # field 22 of proc(5), which counts from the process id
    return int(boot) * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")
