"""How much of the machine's memory the program holds, and how much of what it may have is in use.

A program whose memory grows without end is killed by the kernel hours later, without a word: the
graph of each step's loss kept in a list, a data loader's copies, a cache that forgets nothing.
Read from Linux's own files, some fifty microseconds once a second; elsewhere nothing is recorded.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 1.0

_UNLIMITED: Final = 2**60
"""What version 1 of control groups says where there is no limit, rounded to a page, is above it."""
_OWN: Final = "proc/self/statm"
_MACHINE: Final = "proc/meminfo"
_GROUPS: Final = "proc/self/cgroup"
_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = ("memory.max", "memory.current", "inactive_file")
_KIBIBYTES: Final = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


class MachineMemory:
    """Readings for the rows of one process, one a second at most. For the thread that trains."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where `proc` and `sys` lie. What cannot be read is not recorded."""
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        self._due_at = 0.0
        self._shares: list[Callable[[], float]] = [self._of_machine, *_limits(root)]

    def take(self, now: float) -> dict[str, float]:
        """`host_mem`, resident bytes of this process, and `host_mem_share`, the share in use of
        the memory of the machine or of a limit on the job, whichever is nearer its end.

        Empty within a second of the last reading; `now` is of a clock that never goes back.
        """
        if now < self._due_at:
            return {}
        self._due_at = now + INTERVAL_S
        numbers: dict[str, float] = {}
        try:
            numbers["host_mem"] = float(self._resident_bytes())
        except (OSError, ValueError, IndexError):
            self._due_at = float("inf")  # no Linux: it will be none in a second either
            return numbers
        shares = [share for share in map(_tried, self._shares) if share is not None]
        if shares:
            numbers["host_mem_share"] = max(shares)
        return numbers

    def _resident_bytes(self) -> int:
        return int((self._root / _OWN).read_bytes().split()[1]) * self._page_bytes

    def _of_machine(self) -> float:
        found = dict(_KIBIBYTES.findall((self._root / _MACHINE).read_bytes()))
        return 1.0 - int(found[b"MemAvailable"]) / int(found[b"MemTotal"])


def _tried(share: Callable[[], float]) -> float | None:
    try:
        return share()
    except (OSError, ValueError, KeyError, ZeroDivisionError):  # gone, or not for us to read
        return None


def _limits(root: Path) -> Iterator[Callable[[], float]]:
    """Readers of the limits on this process's control group, and on those it lies in."""
    try:
        lines = (root / _GROUPS).read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            mount, names = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        # Within a container the place may be told from outside of it, where no such folder is:
        # the group's own files then lie at the mount's root.
        inner = mount / place.lstrip("/")
        for folder in (inner, *inner.parents):
            if _is_limited(folder / names[0]):
                yield _reader(folder, names)
            if folder == mount:
                break


def _is_limited(file: Path) -> bool:
    try:
        return int(file.read_text()) < _UNLIMITED  # version 2 says "max" where there is none
    except (OSError, ValueError):
        return False


def _reader(folder: Path, names: tuple[str, str, str]) -> Callable[[], float]:
    limit, usage, inactive = names
    files_not_needed = re.compile(rf"^{inactive} (\d+)$".encode(), re.MULTILINE)

    def share() -> float:
        """Without cached files that the kernel gives up first, as kubelet's working set is."""
        found = files_not_needed.search((folder / "memory.stat").read_bytes())
        spare = 0 if found is None else int(found[1])
        used = int((folder / usage).read_text()) - spare
        return max(used, 0) / int((folder / limit).read_text())

    return share
