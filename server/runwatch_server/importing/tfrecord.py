"""Reads TFRecord files: length | its checksum | bytes | their checksum, repeated.

The checksum is CRC-32C, masked (tensorflow/core/lib/io/record_writer.h).
"""

import struct
from collections.abc import Iterator
from typing import Final

from runwatch_server.importing.errors import LogError

_LENGTH: Final = struct.Struct("<QI")
_CHECKSUM: Final = struct.Struct("<I")
_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8


def is_tfrecord(head: bytes) -> bool:
    """Whether a file's first bytes are a record's length with the right checksum."""
    if len(head) < _LENGTH.size:
        return False
    _, checksum = _LENGTH.unpack_from(head)
    return bool(checksum == masked_crc32c(head[:8]))


def records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each record. An incomplete record at the end, left by a killed writer, is
    skipped. Raises LogError if a checksum is wrong."""
    place = 0
    while place + _LENGTH.size <= len(content):
        length, checksum = _LENGTH.unpack_from(content, place)
        if checksum != masked_crc32c(content[place : place + 8]):
            if not content[place:].strip(b"\0"):  # left by a machine crash
                return
            raise LogError(f"byte {place}", "found a length whose checksum does not fit")
        start = place + _LENGTH.size
        end = start + length
        if end + _CHECKSUM.size > len(content):
            return
        record = content[start:end]
        if _CHECKSUM.unpack_from(content, end)[0] != masked_crc32c(record):
            raise LogError(f"byte {place}", "found a record whose checksum does not fit")
        yield place, record
        place = end + _CHECKSUM.size


def masked_crc32c(octets: bytes) -> int:
    crc = 0xFFFFFFFF
    table = _TABLE
    for octet in octets:
        crc = table[(crc ^ octet) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries: list[int] = []
    for octet in range(256):
        crc = octet
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return tuple(entries)


_TABLE: Final = _table()
