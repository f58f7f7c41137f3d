"""What the operating system keeps from going on: the training thread, or a process that it may be
waiting for, such as a worker of its data loader.

Read from `/proc`, and so on Linux only; elsewhere nothing is known.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch.stalls import Held

_PROC: Final = Path("/proc")
_UNINTERRUPTIBLE: Final = "D"
_STOPPED: Final = frozenset("tT")
_MAX_PROCESSES: Final = 1000


def held_by_system(thread: int) -> Held | None:
    """Of a thread of this process, given its identifier, and of the processes that this one has
    started; None if none of them is held, or nothing is known."""
    own = _native_id(thread)
    if own is not None and _state(_PROC / "self" / "task" / str(own)) == _UNINTERRUPTIBLE:
        return Held.ON_DISK
    states = {_state(process) for process in _descendants()}
    if _STOPPED & states:
        return Held.CHILD_STOPPED
    return Held.CHILD_ON_DISK if _UNINTERRUPTIBLE in states else None


def _native_id(thread: int) -> int | None:
    return next((one.native_id for one in threading.enumerate() if one.ident == thread), None)


def _descendants() -> Iterator[Path]:
    """Also the children of children: workers may be started by a server of forks."""
    waiting = [_PROC / "self"]
    for _ in range(_MAX_PROCESSES):
        if not waiting:
            return
        process = waiting.pop()
        if process.name != "self":
            yield process
        waiting += [_PROC / child for child in _children(process)]


def _children(process: Path) -> Iterator[str]:
    for listed in process.glob("task/*/children"):
        try:
            yield from listed.read_text().split()
        except OSError:  # that thread has ended
            continue


def _state(process: Path) -> str:
    """One letter, as in proc(5); empty if it has ended."""
    try:
        stat = (process / "stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]  # its name, in brackets, may hold anything
