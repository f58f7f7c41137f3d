"""The folder of one rank's spool: all that `runwatch sync` needs beside the records.

<spool_dir>/<run_id>/<attempt's token>-<rank>/
    meta.json      what to tell the service: run, attempt, layouts, how it ended
    receipts.json  answers to commands that were not delivered
    splits.json    frames that the service wanted in smaller pieces
    *.seg, acked   the records (segments.py)
    frame-*.bad    frames that the service refused
    *.seg.bad      records with damage in them (segments.py)
    lock           held for as long as the trainer lives
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from runwatch.commands import Receipt
from runwatch.messages import AttemptClose, AttemptOpen, RunOpen
from runwatch_hooks.transport import files

_META: Final = "meta.json"
_RECEIPTS: Final = "receipts.json"
_SPLITS: Final = "splits.json"
_LOCK: Final = "lock"
_REFUSED: Final = "frame-"
_MAX_BAD_FILES: Final = 64

_Content = TypeVar("_Content")

_Claim = tuple[int, Path]
"""A process, by its id (a child by fork has none of its parent's locks), and a folder."""

_CLAIMS: Final[dict[_Claim, "SpoolFolder"]] = {}
"""Who in this process has a folder. The process's own lock would let it in again, and closing any
descriptor of the file would open the lock to all."""

Splits = dict[int, tuple[int, ...]]
"""For a record's sequence number, the steps within its frame at which a piece begins."""


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """`meta.json`."""

    run: RunOpen
    attempt: AttemptOpen
    rank: int
    layouts: dict[str, dict[str, object]] = {}
    """Documents by their hash."""
    closing: AttemptClose | None = None
    """None for a process that was killed."""


class SpoolFolder:
    """Methods raise OSError as the disk does, and ValueError for files that are not ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: tuple[int, _Claim] | None = None

    def create(self, meta: SpoolMeta) -> None:
        """A new, locked folder, readable by its owner alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.mkdir(mode=0o700)
        os.close(files.create(self.path / _LOCK))
        self.lock()
        self.write_meta(meta)

    def lock(self) -> None:
        """Raises BlockingIOError or PermissionError while another has it, in this process or not.

        A POSIX record lock, as children by fork do not inherit it: a data loader's worker that
        outlives its trainer would keep the spool from being synced.
        """
        claim = os.getpid(), self.path.resolve()
        if _CLAIMS.setdefault(claim, self) is not self:
            raise BlockingIOError(
                errno.EAGAIN, "a run of this process writes there", str(self.path)
            )
        try:
            self._lock = self._locked(), claim
        except OSError:
            del _CLAIMS[claim]
            raise

    def _locked(self) -> int:
        descriptor = os.open(self.path / _LOCK, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def close(self) -> None:
        if self._lock is not None:
            descriptor, claim = self._lock
            self._lock = None
            os.close(descriptor)
            _CLAIMS.pop(claim, None)

    def read_meta(self) -> SpoolMeta:
        return msgspec.json.decode((self.path / _META).read_bytes(), type=SpoolMeta)

    def write_meta(self, meta: SpoolMeta) -> None:
        files.replace(self.path / _META, msgspec.json.encode(meta))

    def read_receipts(self) -> list[Receipt]:
        return self._read(_RECEIPTS, list[Receipt], default=[])

    def write_receipts(self, receipts: list[Receipt]) -> None:
        files.replace(self.path / _RECEIPTS, msgspec.json.encode(receipts))

    def read_splits(self) -> Splits:
        return self._read(_SPLITS, Splits, default={})

    def write_splits(self, splits: Splits) -> None:
        files.replace(self.path / _SPLITS, msgspec.json.encode(splits))

    def keep_refused(self, seq: int, payload: bytes) -> None:
        """Keeps aside what the service refused, for a person to look at; only so many."""
        path = self.path / f"{_REFUSED}{seq}.bad"
        if not path.exists() and len(self.refused_files()) < _MAX_BAD_FILES:
            files.write_new(path, payload)

    def bad_files(self) -> list[Path]:
        """All that is kept for a person to look at: a folder that holds one is not removed."""
        return [*self.refused_files(), *self.damaged_files()]

    def refused_files(self) -> list[Path]:
        return sorted(self.path.glob(f"{_REFUSED}*.bad"))

    def damaged_files(self) -> list[Path]:
        return sorted(self.path.glob("*.seg.bad"))

    def remove(self) -> None:
        """The whole folder, and the run's where it was the last."""
        (self.path / _META).unlink()  # first: without it a folder that is half gone is no spool
        for path in self.path.iterdir():
            path.unlink()
        self.path.rmdir()
        self.close()
        with suppress(OSError):  # other ranks' or attempts' spools lie there
            self.path.parent.rmdir()

    def _read(self, name: str, content: type[_Content], *, default: _Content) -> _Content:
        try:
            octets = (self.path / name).read_bytes()
        except FileNotFoundError:
            return default
        return msgspec.json.decode(octets, type=content)


def find_spools(root: Path) -> Iterator[Path]:
    """Every spool at or below a folder, in order of run and attempt (both sort by time). Passes
    over what vanishes meanwhile: others may bring theirs in."""
    yield from sorted(Path(folder) for folder, _, names in os.walk(root) if _META in names)
