"""The processes that judge for a service, as Linux knows them."""

from pathlib import Path


def judging_processes(service: int) -> list[int]:
    """Their ids; that of the service is asked for."""
    children = [
        int(pid)
        for task in Path(f"/proc/{service}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    return [pid for pid in children if b"judging.worker" in _command_line(pid)]


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
