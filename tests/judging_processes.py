"""The processes that judge for a service, as Linux knows them."""

from pathlib import Path


def judging_processes(service: int) -> list[int]:
    """Their ids; that of the service is asked for.

    Found by their parent, and not as the children of the service's threads: one of these may end
    while its folder is read.
    """
    pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    children = [pid for pid in pids if _parent(pid) == service]
    return [pid for pid in children if b"judging.worker" in _command_line(pid)]


def _parent(pid: int) -> int | None:
    """None where the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])  # a name may hold blanks and brackets


def _command_line(pid: int) -> bytes:
    """Empty where the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_over(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked how yet."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
