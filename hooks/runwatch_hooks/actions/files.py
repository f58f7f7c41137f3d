"""Files that are there whole or not at all, whatever happens while they are written."""

import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
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


def write_atomically(
    path: Path, write: Callable[[HashingWriter], None], *, mark: str = ""
) -> HashingWriter:
    """Writes aside, makes it durable, and gives it its name. Raises what `write` does, OSError.

    After a crash at any instant the name holds the old content or the new. The folder is synced
    too, or a power cut could take the new name away again. `mark` stands in the name aside.
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
    """The same, under the first of the names that nobody has: another process may give names in
    the folder at that very moment. Returns the path, too."""
    path = folder / next(names)
    with _written_aside(path, write, mark) as (aside, writer):
        while not _takes(path, aside):
            path = folder / next(names)
    return path, writer


def _takes(path: Path, aside: Path) -> bool:
    """Whether the name was free, and is now that of the file aside."""
    try:
        _name_anew(aside, path)
    except FileExistsError:
        return False
    return True


def _name_anew(aside: Path, path: Path) -> None:
    """Raises FileExistsError where another has the name."""
    try:
        os.link(aside, path)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # some file systems give no file a second name: an empty one holds it first
        path.open("xb").close()
        aside.replace(path)
    else:
        aside.unlink()


@contextmanager
def _written_aside(
    path: Path, write: Callable[[HashingWriter], None], mark: str
) -> Generator[tuple[Path, HashingWriter]]:
    """Durable once the block has given it a name; gone where that fails."""
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
