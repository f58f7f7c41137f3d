"""The program's host memory, and the share in use of the memory that it may have.

A program whose memory keeps growing is killed by the kernel hours later, without a message. Typical
causes are losses kept in a list with their graphs, copies in data loader workers, and unbounded
caches. Read from /proc and /sys/fs/cgroup once a second, in about fifty microseconds; on systems
other than Linux nothing is recorded.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 1.0

_UNLIMITED: Final = 2**60
"""Version 1 of control groups reports a number above this (rounded to a page) for no limit."""
_OWN: Final = "proc/self/statm"
_MACHINE: Final = "proc/meminfo"
_GROUPS: Final = "proc/self/cgroup"
_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = ("memory.max", "memory.current", "inactive_file")
_KIBIBYTES: Final = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


class MachineMemory:
    """Reads the memory of this process, at most once a second. Used by the training thread."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is the folder with `proc` and `sys`. What cannot be read is not recorded."""
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        self._due_at = 0.0
        self._shares: list[Callable[[], float]] = [self._of_machine, *_limits(root)]

    def take(self, now: float) -> dict[str, float]:
        """`host_mem`: resident bytes of this process. `host_mem_share`: the share in use of the
        machine's memory or of a cgroup limit, whichever is greater.

        Empty within a second of the last reading; `now` is a monotonic clock's time in seconds.
        """
        if now < self._due_at:
            return {}
        self._due_at = now + INTERVAL_S
        numbers: dict[str, float] = {}
        try:
            numbers["host_mem"] = float(self._resident_bytes())
        except (OSError, ValueError, IndexError):
            self._due_at = float("inf")  # not Linux: no need to try again
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
    except (OSError, ValueError, KeyError, ZeroDivisionError):  # gone, or not readable for us
        return None


def _limits(root: Path) -> Iterator[Callable[[], float]]:
    """Readers for the limits of this process's control group and of its parents."""
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
        # In a container, the path may be the one outside of it, which does not exist inside. The
        # group's own files are then at the mount's root.
        inner = mount / place.lstrip("/")
        for folder in (inner, *inner.parents):
            if _is_limited(folder / names[0]):
                yield _reader(folder, names)
            if folder == mount:
                break


def _is_limited(file: Path) -> bool:
    try:
        return int(file.read_text()) < _UNLIMITED  # version 2 has "max" for no limit: ValueError
    except (OSError, ValueError):
        return False


def _reader(folder: Path, names: tuple[str, str, str]) -> Callable[[], float]:
    limit, usage, inactive = names
    files_not_needed = re.compile(rf"^{inactive} (\d+)$".encode(), re.MULTILINE)

    def share() -> float:
        """The share in use, without inactive file cache, like kubelet's working set."""
        found = files_not_needed.search((folder / "memory.stat").read_bytes())
        spare = 0 if found is None else int(found[1])
        used = int((folder / usage).read_text()) - spare
        return max(used, 0) / int((folder / limit).read_text())

    return share
