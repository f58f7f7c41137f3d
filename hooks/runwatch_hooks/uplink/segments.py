"""A queue of records on disk: segment files, and a file with what was acknowledged.

    00000000000000000001.seg   named by the first sequence number in it; append only
    00000000000000004711.seg
    acked                      the highest sequence number acknowledged
    *.seg.bad                  files with damage, kept after their other records were read

One thread writes and reads. Files are not fsynced: the spool survives any end of its process, and
after a loss of power the torn end is skipped. An fsync in every interval would compete with the
trainer's own checkpoints.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The format of spool records: `"RWS1" | length | crc32 | seq | payload`, one after the other. The
# mark at the head lets a reader find the next record after a damaged one, whose length cannot be
# trusted.

MAX_PAYLOAD_BYTES: Final = 64 * 2**20
"""A greater length means damage."""

_MARK: Final = b"RWS1"
_HEAD: Final = struct.Struct("<4sIIQ")
_SEQ: Final = struct.Struct("<Q")
HEAD_BYTES: Final = _HEAD.size


@dataclass(frozen=True, slots=True)
class Record:
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of looking for a record in a segment file."""

    record: Record | None
    """None if no complete record follows."""
    end: int
    """Where to continue; the end of the bytes if there is no record."""
    skipped_bytes: int
    """Damaged bytes before the record."""


def encode_record(record: Record) -> bytes:
    head = _HEAD.pack(_MARK, len(record.payload), _checksum(record), record.seq)
    return head + record.payload


def record_bytes(head: bytes) -> int:
    """The size of a record according to its head; of the head alone if it is invalid."""
    if len(head) < HEAD_BYTES or not head.startswith(_MARK):
        return HEAD_BYTES
    _, length, _, _ = _HEAD.unpack(head)
    return HEAD_BYTES + (length if length <= MAX_PAYLOAD_BYTES else 0)


def scan_record(segment: bytes, start: int) -> Scan:
    """The first complete record at or after `start`."""
    place = start
    while (place := segment.find(_MARK, place)) >= 0:
        record = _record_at(segment, place)
        if record is not None:
            end = place + HEAD_BYTES + len(record.payload)
            return Scan(record, end, skipped_bytes=place - start)
        place += 1
    return Scan(None, len(segment), skipped_bytes=len(segment) - start)


def _record_at(segment: bytes, place: int) -> Record | None:
    if len(segment) - place < HEAD_BYTES:
        return None
    _, length, checksum, seq = _HEAD.unpack_from(segment, place)
    start = place + HEAD_BYTES
    if length > min(MAX_PAYLOAD_BYTES, len(segment) - start):
        return None
    record = Record(seq, segment[start : start + length])
    return record if _checksum(record) == checksum else None


def _checksum(record: Record) -> int:
    return zlib.crc32(record.payload, zlib.crc32(_SEQ.pack(record.seq)))


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


def replace_file(path: Path, octets: bytes) -> None:
    """Replace a file's content atomically: a reader sees the old or the new. Raises OSError."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # left by a process that died here
    write_new(fresh, octets)
    fresh.replace(path)


_ACKED: Final = struct.Struct("<QI")
_ACKED_NAME: Final = "acked"
_BAD: Final = ".bad"
_MOST_KEPT: Final = 16
"""Damaged files that a trainer keeps. A `sync`, which writes no new ones, keeps all."""


class Segments:
    """Records in order of their sequence numbers. Methods raise OSError."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        """Opens a folder, which may hold segments. With `segment_bytes` 0 it is only read."""
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._sizes = {path: path.stat().st_size for path in sorted(folder.glob("*.seg"))}
        self._reader: _Reader | None = None
        self._head: Record | None = None
        self._writer: _Writer | None = None
        self.acked_seq = _read_acked(folder / _ACKED_NAME)
        self.num_damaged_bytes = 0
        self._damaged = set[Path]()

    @property
    def num_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def num_files(self) -> int:
        return len(self._sizes)

    def append(self, record: Record) -> None:
        writer = self._writer
        if writer is None or writer.num_bytes >= self._segment_bytes:
            writer = self._roll(record.seq)
        try:
            writer.append(encode_record(record))
        except OSError:
            self._abandon(writer)
            raise
        self._sizes[writer.path] = writer.num_bytes

    def head(self) -> Record | None:
        """The oldest record that is not acknowledged."""
        while self._head is None or self._head.seq <= self.acked_seq:
            reader = self._open_reader()
            if reader is None:
                return None
            scan = reader.read()
            self._head = scan.record
            self.num_damaged_bytes += scan.skipped_bytes
            if scan.skipped_bytes:
                self._damaged.add(reader.path)
            if scan.record is None:
                if self._is_written(reader.path):
                    return None
                self._retire(reader.path)
        return self._head

    def acknowledge(self, seq: int) -> None:
        """Everything up to this sequence number has arrived."""
        self.acked_seq = max(self.acked_seq, seq)
        _write_acked(self.folder / _ACKED_NAME, self.acked_seq)

    def drop_oldest(self) -> list[Record]:
        """Drop the oldest file, but never the newest; returns the records lost with it."""
        if len(self._sizes) < 2:
            return []
        path = next(iter(self._sizes))
        lost = [record for record in _records_in(path) if record.seq > self.acked_seq]
        self._remove(path)
        self._head = None
        return lost

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._close_reader()

    def _roll(self, first_seq: int) -> "_Writer":
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        path = self.folder / f"{first_seq:020d}.seg"
        self._writer = _Writer(path)
        self._sizes[path] = 0
        return self._writer

    def _abandon(self, writer: "_Writer") -> None:
        """Write no more to this file, whose end may be damaged."""
        self._writer = None
        writer.close()
        if writer.num_bytes == 0:  # or a full disk would get an empty file for each frame
            self._remove(writer.path)

    def _open_reader(self) -> "_Reader | None":
        if self._reader is None and self._sizes:
            self._reader = _Reader(next(iter(self._sizes)))
        return self._reader

    def _is_written(self, path: Path) -> bool:
        return self._writer is not None and self._writer.path == path

    def _retire(self, path: Path) -> None:
        """A file was read to its end: remove it, or keep it if it is damaged."""
        if path in self._damaged and (not self._segment_bytes or self._num_kept < _MOST_KEPT):
            path.rename(path.with_name(path.name + _BAD))
        self._remove(path)

    @property
    def _num_kept(self) -> int:
        return sum(1 for _ in self.folder.glob(f"*.seg{_BAD}"))

    def _remove(self, path: Path) -> None:
        if self._reader is not None and self._reader.path == path:
            self._close_reader()
        del self._sizes[path]
        path.unlink(missing_ok=True)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._place = 0

    def read(self) -> Scan:
        """The next complete record. Places in the result count from the end of the last one."""
        scan = scan_record(self._next_record(), 0)
        if scan.record is None or scan.skipped_bytes:  # damage: look for the next mark
            scan = scan_record(self._rest(), 0)
        self._place += scan.end
        return scan

    def close(self) -> None:
        os.close(self._descriptor)

    def _next_record(self) -> bytes:
        head = os.pread(self._descriptor, HEAD_BYTES, self._place)
        return os.pread(self._descriptor, record_bytes(head), self._place)

    def _rest(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size - self._place, self._place)


class _Writer:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self._descriptor = create(path, os.O_APPEND)

    def append(self, octets: bytes) -> None:
        """Append all bytes or, if the disk is full, none. Raises OSError."""
        try:
            write_all(self._descriptor, octets)
        except OSError:
            os.ftruncate(self._descriptor, self.num_bytes)
            raise
        self.num_bytes += len(octets)

    def close(self) -> None:
        os.close(self._descriptor)


def _records_in(path: Path) -> Iterator[Record]:
    octets = path.read_bytes()
    place = 0
    while (scan := scan_record(octets, place)).record is not None:
        yield scan.record
        place = scan.end


def _read_acked(path: Path) -> int:
    """The acknowledged sequence number. 0 if there is none or the file is damaged: sending again is
    harmless."""
    try:
        octets = path.read_bytes()
    except FileNotFoundError:
        return 0
    if len(octets) != _ACKED.size:
        return 0
    seq, checksum = _ACKED.unpack(octets)
    return int(seq) if zlib.crc32(octets[:8]) == checksum else 0


def _write_acked(path: Path, seq: int) -> None:
    octets = seq.to_bytes(8, "little")
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        descriptor = create(path)
    try:
        write_all(descriptor, octets + zlib.crc32(octets).to_bytes(4, "little"))
    finally:
        os.close(descriptor)
