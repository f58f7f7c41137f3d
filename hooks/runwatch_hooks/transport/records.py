"""The format of spool records: `"RWS1" | length | crc32 | seq | payload`, one after the other.

The mark at the head lets a reader find the next record after a damaged one, whose length cannot be
trusted.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

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
