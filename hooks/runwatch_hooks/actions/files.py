"""Files that are there whole or not at all, whatever happens while they are written."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

TEMPORARY_PREFIX: Final = ".writing-"


class HashingWriter:
    """A file that knows the SHA-256 of what was written to it, in order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0

    def write(self, octets: bytes | memoryview) -> int:
        view = memoryview(octets).cast("B")
        self._file.write(view)
        self._sha256.update(view)
        self.num_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def write_atomically(path: Path, write: Callable[[HashingWriter], None]) -> HashingWriter:
    """Writes aside, makes it durable, and gives it its name. Raises what `write` does, OSError.

    After a crash at any instant the name holds the old content or the new. The folder is synced
    too, or a power cut could take the new name away again.
    """
    temporary = path.with_name(TEMPORARY_PREFIX + path.name)
    try:
        with temporary.open("wb") as file:
            writer = HashingWriter(file)
            write(writer)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return writer


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
