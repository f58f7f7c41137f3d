"""Atomic writing of files: complete or absent, whatever happens meanwhile."""

import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

TEMPORARY_PREFIX: Final = ".writing-"


class HashingWriter:
    """A file that computes the SHA-256 of what is written to it."""

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


def write_atomically(
    path: Path, write: Callable[[HashingWriter], None], *, mark: str = ""
) -> HashingWriter:
    """Write a temporary file, sync it, and rename it. Raises OSError, and what `write` raises.

    After a crash at any instant, `path` has the old content or the new. The folder is synced too,
    or a power cut could undo the rename. `mark` is a prefix in the temporary file's name.
    """
    with _written_aside(path, write, mark) as (aside, writer):
        aside.replace(path)
    return writer


def write_anew(
    folder: Path,
    names: Iterator[str],
    write: Callable[[HashingWriter], None],
    *,
    mark: str = "",
) -> tuple[Path, HashingWriter]:
    """Like `write_atomically`, under the first of `names` that is free, even if another process
    takes names in the folder at the same moment. Returns the path as well."""
    path = folder / next(names)
    with _written_aside(path, write, mark) as (aside, writer):
        while not _takes(path, aside):
            path = folder / next(names)
    return path, writer


def _takes(path: Path, aside: Path) -> bool:
    """Give the temporary file this name; False if the name is taken."""
    try:
        _name_anew(aside, path)
    except FileExistsError:
        return False
    return True


def _name_anew(aside: Path, path: Path) -> None:
    """Rename without overwriting. Raises FileExistsError if the name is taken."""
    try:
        os.link(aside, path)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # no hard links on this file system: reserve the name with an empty file
        path.open("xb").close()
        aside.replace(path)
    else:
        aside.unlink()


@contextmanager
def _written_aside(
    path: Path, write: Callable[[HashingWriter], None], mark: str
) -> Generator[tuple[Path, HashingWriter]]:
    """A synced temporary file, to be renamed in the block; deleted if that fails."""
    aside = path.with_name(f"{TEMPORARY_PREFIX}{mark}{path.name}")
    try:
        with aside.open("wb") as file:
            writer = HashingWriter(file)
            write(writer)
            file.flush()
            os.fsync(file.fileno())
        yield aside, writer
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The hex digest of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
