"""Files that only their owner can read, created without following symbolic links."""

import os
from pathlib import Path
from typing import Final

_PRIVATE: Final = 0o600
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def create(path: Path, flags: int = 0) -> int:
    """A descriptor of a new file. Raises OSError, also if it exists."""
    return os.open(path, _NEW | flags, _PRIVATE)


def write_all(descriptor: int, octets: bytes) -> None:
    """Write all bytes; `os.write` may write only some when a disk fills up. Raises OSError."""
    rest = memoryview(octets)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_new(path: Path, octets: bytes) -> None:
    """Create a file with this content. Raises OSError."""
    descriptor = create(path)
    try:
        write_all(descriptor, octets)
    finally:
        os.close(descriptor)


def replace(path: Path, octets: bytes) -> None:
    """Replace a file's content atomically: a reader sees the old or the new. Raises OSError."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # left by a process that died here
    write_new(fresh, octets)
    fresh.replace(path)
