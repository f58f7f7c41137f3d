"""A spool: the frames of one rank that the service has not acknowledged, and what `sync` needs."""

import errno
import fcntl
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from runwatch.codec import decode_frame
from runwatch.commands import Receipt
from runwatch.frames import Frame
from runwatch.messages import AttemptClose, AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink import segments
from runwatch_hooks.uplink.segments import HEAD_BYTES, Record, Segments

# The folder of one rank's spool: everything that `runwatch sync` needs.
#
# <spool_dir>/<run_id>/<a ULID of the attempt>-<rank>/
#     meta.json      run, attempt with its token, layouts, and how the attempt ended
#     receipts.json  receipts that were not delivered
#     splits.json    frames that were split because they were too large
#     *.seg, acked   the records (segments.py)
#     frame-*.bad    frames that the service refused
#     *.seg.bad      segments with damage (segments.py)
#     lock           locked while the trainer is running

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
        os.close(segments.create(self.path / _LOCK))
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
        segments.replace_file(self.path / _META, msgspec.json.encode(meta))

    def read_receipts(self) -> list[Receipt]:
        return self._read(_RECEIPTS, list[Receipt], default=[])

    def write_receipts(self, receipts: list[Receipt]) -> None:
        segments.replace_file(self.path / _RECEIPTS, msgspec.json.encode(receipts))

    def read_splits(self) -> Splits:
        return self._read(_SPLITS, Splits, default={})

    def write_splits(self, splits: Splits) -> None:
        segments.replace_file(self.path / _SPLITS, msgspec.json.encode(splits))

    def keep_refused(self, seq: int, payload: bytes) -> None:
        """Keep a refused frame in a file, for people to inspect; up to a limit."""
        path = self.path / f"{_REFUSED}{seq}.bad"
        if not path.exists() and len(self.refused_files()) < _MAX_BAD_FILES:
            segments.write_new(path, payload)

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


log = OwnLog(__name__)


class Spool:
    """A queue of records, bounded by bytes on disk and by bytes in memory. Never raises OSError.

    Used by one thread. `on_lost` is called with every record that had to be dropped.
    """

    def __init__(
        self,
        *,
        disk_bytes: int,
        memory_bytes: int,
        min_free_bytes: int,
        on_lost: Callable[[Record], None],
    ) -> None:
        self._segments: Segments | None = None
        self._disk_bytes = disk_bytes
        self._memory: deque[Record] = deque()
        self._num_memory_bytes = 0
        self._memory_bytes = memory_bytes
        self._min_free_bytes = min_free_bytes
        self._on_lost = on_lost
        self._num_abandoned_bytes = 0
        self.next_seq = 1
        self.memory_only = True
        """No disk yet, or it is full or broken: records are lost if the process ends."""

    def use(self, segments: Segments) -> None:
        """Write to disk from now on, if possible."""
        self._segments = segments
        self.memory_only = False

    @property
    def num_pending(self) -> int:
        """An upper limit on the waiting records: damaged and lost ones count until reached."""
        head = self.head()
        return 0 if head is None else self.next_seq - head.seq

    @property
    def num_damaged_bytes(self) -> int:
        segments = self._segments
        return self._num_abandoned_bytes + (segments.num_damaged_bytes if segments else 0)

    def append(self, payload: bytes) -> None:
        """Add a payload, under `next_seq`."""
        record = Record(self.next_seq, payload)
        self.next_seq += 1
        if self._segments is None or not self._write(self._segments, record):
            self._keep_in_memory(record)

    def head(self) -> Record | None:
        """The oldest record that was not acknowledged."""
        heads = [record for record in (self._disk_head(), self._memory_head()) if record]
        return min(heads, key=lambda record: record.seq, default=None)

    def acknowledge(self, record: Record) -> None:
        """The head has arrived, or was set aside."""
        if self._memory_head() == record:
            self._pop_memory()
        if self._segments is not None:
            try:
                self._segments.acknowledge(record.seq)
            except OSError as error:  # at worst, a sync sends it again, which is harmless
                log.debug("spool: the mark of what was acknowledged is not written: %s", error)

    def give_up_memory(self) -> int:
        """At the end, drop the records in memory; returns how many are lost."""
        num_lost = len(self._memory)
        while self._memory:
            self._on_lost(self._pop_memory())
        return num_lost

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()

    def _write(self, segments: Segments, record: Record) -> bool:
        try:
            self._make_room(segments, HEAD_BYTES + len(record.payload))
            free_bytes = shutil.disk_usage(segments.folder).free
            if free_bytes < self._min_free_bytes:
                raise OSError(f"found {free_bytes} bytes free, wanted {self._min_free_bytes}")
            segments.append(record)
        except OSError as error:
            if not self.memory_only:
                log.warning("spool: cannot be written, so in memory only from now on: %s", error)
            self.memory_only = True
            return False
        if self.memory_only:
            log.warning("spool: on disk again")
        self.memory_only = False
        return True

    def _make_room(self, segments: Segments, num_bytes: int) -> None:
        while segments.num_files > 1 and segments.num_bytes + num_bytes > self._disk_bytes:
            for lost in segments.drop_oldest():
                self._on_lost(lost)

    def _keep_in_memory(self, record: Record) -> None:
        self._memory.append(record)
        self._num_memory_bytes += len(record.payload)
        while self._num_memory_bytes > self._memory_bytes and len(self._memory) > 1:
            self._on_lost(self._pop_memory())

    def _pop_memory(self) -> Record:
        record = self._memory.popleft()
        self._num_memory_bytes -= len(record.payload)
        return record

    def _memory_head(self) -> Record | None:
        return self._memory[0] if self._memory else None

    def _disk_head(self) -> Record | None:
        if self._segments is None:
            return None
        try:
            return self._segments.head()
        except OSError as error:
            log.warning("spool: cannot be read, so in memory only from now on: %s", error)
            self._abandon(self._segments)
            return None

    def _abandon(self, segments: Segments) -> None:
        """Stop using the disk, for example because the folder was removed: writes to its open file
        would be lost."""
        self._num_abandoned_bytes += segments.num_damaged_bytes + segments.num_bytes
        self._segments = None
        self.memory_only = True
        segments.close()


class SplitLedger:
    """Which records were split, and at which of their steps each piece begins.

    Frames split into smaller ones because the service found them too large (413). The sequence
    numbers that the service sees have no gaps: after a frame that became n pieces, all later
    numbers increase by n - 1. Splits are written to disk before a piece is sent, so that a
    repetition, by this process or by `sync`, sends the same bytes under the same numbers.
    """

    def __init__(
        self, splits: Mapping[int, tuple[int, ...]], save: Callable[[Splits], None]
    ) -> None:
        self._splits = dict(splits)
        self._save = save

    def wire_seq(self, seq: int) -> int:
        """The sequence number under which a record, or its first piece, is sent."""
        return seq + sum(len(starts) - 1 for cut, starts in self._splits.items() if cut < seq)

    def is_cut(self, seq: int) -> bool:
        return seq in self._splits

    def pieces(self, record: Record) -> list[Frame]:
        frame = decode_frame(record.payload)
        starts = self._splits.get(record.seq, (0,))
        return [piece_of(frame, *ends) for ends in pairwise((*starts, frame.num_steps))]

    def cut(self, record: Record, index: int) -> bool:
        """Halve one piece of a record; False if it is a single step already.

        The pieces before it are already stored by the service, and keep their numbers.
        """
        num_steps = decode_frame(record.payload).num_steps
        starts = self._splits.get(record.seq, (0,))
        first, last = (*starts, num_steps)[index : index + 2]
        if last - first < 2:
            return False
        middle = (first + last) // 2
        self._splits[record.seq] = (*starts[: index + 1], middle, *starts[index + 1 :])
        self._save(self._splits)
        return True


def piece_of(frame: Frame, first: int, last: int) -> Frame:
    """A range of a frame's steps; events and histograms go with the first piece."""
    return replace(
        frame,
        first_step=frame.first_step + first,
        times=frame.times[first:last],
        metrics=frame.metrics[first:last],
        stats=frame.stats[first:last],
        events=frame.events if first == 0 else (),
        histograms=frame.histograms if first == 0 else (),
    )
