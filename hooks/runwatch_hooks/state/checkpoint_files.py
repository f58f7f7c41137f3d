"""The files of checkpoints in a folder: their names, their facts, and what of them is left behind.

A checkpoint is two files: `step-000000499-000003.pt` and the same name with `.json`, written last,
with its checksum and facts. One without the other was left by a process that died, and counts as
absent. The second number grows with every save, because a step can be reached twice, after a
rollback.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from runwatch_hooks.own_log import OwnLog

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


log = OwnLog(__name__)

_NAME: Final = re.compile(r"step-\d{9,}-\d{6,}")
_ASIDE: Final = re.compile(
    rf"{re.escape(TEMPORARY_PREFIX)}(?P<mark>(\w+-)?){_NAME.pattern}\.(pt|json)"
)
_LEFT_S: Final = 3600.0
"""Seconds since the last write after which a file counts as left behind. Generous, because the disk
may hang and the clocks of machines differ."""


class CheckpointFacts(msgspec.Struct, frozen=True):
    """The content of the JSON file beside a checkpoint."""

    step: int
    serial: int
    sha256: str
    num_bytes: int
    is_finite: bool
    is_good: bool = False
    is_suspect: bool = False
    """An unhealthy step followed while it was on probation."""
    is_undone: bool = False
    """A rollback went back to before it, so its step is no longer part of the run's history."""
    world_size: int = 0
    """How many ranks saved it together; 0 if unknown."""
    run_id: str = ""
    """The run that saved it; empty if unknown."""
    resumed: tuple[str, ...] = ()
    """The runs that `run_id` continued from, as far as the folder held checkpoints of them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    facts: CheckpointFacts

    @property
    def step(self) -> int:
        return self.facts.step


def name_of(step: int, serial: int) -> str:
    return f"step-{max(step, 0):09d}-{serial:06d}.pt"


def serial_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def next_serial(folder: Path) -> int:
    # From the names, so that one without its JSON file is not overwritten.
    return max(map(serial_of, _files_in(folder)), default=0) + 1


def complete_in(folder: Path) -> list[Checkpoint]:
    """All complete checkpoints, in the order in which they were saved."""
    held = [_read_facts(path) for path in _files_in(folder)]
    return sorted(
        (checkpoint for checkpoint in held if checkpoint is not None),
        key=lambda checkpoint: checkpoint.facts.serial,
    )


def incomplete_in(folder: Path) -> list[Path]:
    """Checkpoints without their JSON file: left behind, or just being written."""
    return [path for path in _files_in(folder) if not _facts_path(path).exists()]


def temporary_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files under a temporary name, left behind or just being written, and the mark in it that says
    whose they are."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if (aside := _ASIDE.fullmatch(path.name)) is not None:
            yield path, aside["mark"]


def is_long_unwritten(path: Path) -> bool:
    """Whether its last write is so long ago that nobody is writing it any more."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > _LEFT_S
    return False


def delete(path: Path) -> None:
    # The JSON file first, so that a half-deleted checkpoint counts as absent.
    with contextlib.suppress(OSError):
        _facts_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def delete_temporary(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def write_facts(checkpoint: Checkpoint, *, mark: str) -> Checkpoint:
    """Write the JSON file, by a temporary file with this mark in its name. Raises OSError."""

    def write(file: HashingWriter) -> None:
        file.write(msgspec.json.encode(checkpoint.facts))

    write_atomically(_facts_path(checkpoint.path), write, mark=mark)
    return checkpoint


def _files_in(folder: Path) -> Sequence[Path]:
    """All files named like a checkpoint of the hook, complete or not."""
    return [one for one in folder.glob("step-*.pt") if _NAME.fullmatch(one.stem)]


def _read_facts(path: Path) -> Checkpoint | None:
    try:
        facts = msgspec.json.decode(_facts_path(path).read_bytes(), type=CheckpointFacts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        log.warning("skipping a checkpoint whose JSON file cannot be read: %s (%s)", path, error)
        return None
    return Checkpoint(path, facts)


def _facts_path(path: Path) -> Path:
    return path.with_suffix(".json")
