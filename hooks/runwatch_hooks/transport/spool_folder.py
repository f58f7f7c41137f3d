"""The folder of one rank's spool: everything that `runwatch sync` needs.

<spool_dir>/<run_id>/<a ULID of the attempt>-<rank>/
    meta.json      run, attempt with its token, layouts, and how the attempt ended
    receipts.json  receipts that were not delivered
    splits.json    frames that were split because they were too large
    *.seg, acked   the records (segments.py)
    frame-*.bad    frames that the service refused
    *.seg.bad      segments with damage (segments.py)
    lock           locked while the trainer is running
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from runwatch.commands import Receipt
from runwatch.messages import AttemptClose, AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch_hooks.transport import files

_META: Final = "meta.json"
_RECEIPTS: Final = "receipts.json"
_SPLITS: Final = "splits.json"
_LOCK: Final = "lock"
_REFUSED: Final = "frame-"
_MAX_BAD_FILES: Final = 64

_Content = TypeVar("_Content")

_Claim = tuple[int, Path]
"""(process id, folder). A forked child does not inherit its parent's locks."""

_CLAIMS: Final[dict[_Claim, "SpoolFolder"]] = {}
"""The folders that are locked in this process. Needed besides the file lock, which a process could
take twice, and which is released when any descriptor of the file is closed."""

Splits = dict[int, tuple[int, ...]]
"""Sequence number of a record -> the steps within its frame at which a piece begins."""


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `meta.json`."""

    run: RunOpen
    attempt: AttemptOpen
    rank: int
    layouts: dict[str, dict[str, object]] = {}
    """Hash -> document."""
    closing: AttemptClose | None = None
    """How the attempt ended; None if the process was killed."""


class SpoolFolder:
    """One spool's folder. Methods raise OSError, and ValueError for files in another format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: tuple[int, _Claim] | None = None

    def create(self, meta: SpoolMeta) -> None:
        """Create the folder, locked and readable by its owner only."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.mkdir(mode=0o700)
        os.close(files.create(self.path / _LOCK))
        self.lock()
        self.write_meta(meta)

    def lock(self) -> None:
        """Lock the folder. Raises BlockingIOError or PermissionError if it is locked already, by
        this process or another.

        It is a POSIX record lock, which forked children do not inherit: otherwise a data loader
        worker that outlives its trainer would keep the spool from being synced.
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
        """Keep a refused frame in a file, for people to inspect; up to a limit."""
        path = self.path / f"{_REFUSED}{seq}.bad"
        if not path.exists() and len(self.refused_files()) < _MAX_BAD_FILES:
            files.write_new(path, payload)

    def bad_files(self) -> list[Path]:
        """All files kept for people to inspect. A folder with any is not removed."""
        return [*self.refused_files(), *self.damaged_files()]

    def refused_files(self) -> list[Path]:
        return sorted(self.path.glob(f"{_REFUSED}*.bad"))

    def damaged_files(self) -> list[Path]:
        return sorted(self.path.glob("*.seg.bad"))

    def remove(self) -> None:
        """Remove the folder, and the run's folder if it is empty then."""
        (self.path / _META).unlink()  # first, so that a half-removed folder is no spool
        for path in self.path.iterdir():
            path.unlink()
        self.path.rmdir()
        self.close()
        with suppress(OSError):  # not empty: it holds spools of other ranks or attempts
            self.path.parent.rmdir()

    def _read(self, name: str, content: type[_Content], *, default: _Content) -> _Content:
        try:
            octets = (self.path / name).read_bytes()
        except FileNotFoundError:
            return default
        return msgspec.json.decode(octets, type=content)


def folder_name(attempt: AttemptOpen, rank: int) -> str:
    """Sorts by when the attempt began. It is in paths, logs and error messages, so it does not
    contain the token."""
    began_ms = int(max(attempt.started_at, 0.0) * 1000)
    return f"{ulid(began_ms, hashlib.sha256(attempt.token.encode()).digest()[:10])}-{rank}"


def find_spools(root: Path) -> Iterator[Path]:
    """Every spool at or below a folder, in order of run and attempt (both sort by time). Folders
    that vanish meanwhile are skipped: another process may be sending them."""
    yield from sorted(Path(folder) for folder, _, names in os.walk(root) if _META in names)
