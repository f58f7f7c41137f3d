"""Reads LevelDB's log format as W&B writes it: records split into blocks of 32 KiB.

A block holds chunks: checksum (4) | length (2) | type (1) | bytes. A record is one FULL chunk, or
FIRST, any number of MIDDLE, and LAST; a block's last bytes, if too few for a chunk's header, are
zeros. W&B puts seven bytes of its own at the start, which count as part of the first block, and
uses zlib's CRC-32 of type and bytes (wandb/sdk/internal/datastore.py).
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from runwatch_server.importing.errors import LogError

FILE_HEADER: Final = struct.Struct("<4sHB")
MAGIC: Final = (b":W&B", 0xBEE1)
_BLOCK_BYTES: Final = 32 * 2**10
_CHUNK: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def is_wandb(head: bytes) -> bool:
    """Whether a file's first bytes are those of a W&B run."""
    return len(head) >= FILE_HEADER.size and FILE_HEADER.unpack_from(head)[:2] == MAGIC


def records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each record. An incomplete record at the end, left by a killed writer, is
    skipped. Raises LogError if a checksum or the order of chunks is wrong."""
    begun: list[bytes] = []
    begun_at = 0
    for place, kind, octets in _chunks(content):
        if (kind in (_FULL, _FIRST)) == bool(begun):
            raise LogError(f"byte {place}", f"found a chunk of type {kind} out of order")
        begun_at = begun_at if begun else place
        begun.append(octets)
        if kind in (_FULL, _LAST):
            yield begun_at, b"".join(begun)
            begun = []


def _chunks(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    place = FILE_HEADER.size
    while True:
        left_in_block = _BLOCK_BYTES - place % _BLOCK_BYTES
        if left_in_block < _CHUNK.size:
            place += left_in_block
        if place + _CHUNK.size > len(content):
            return
        checksum, length, kind = _CHUNK.unpack_from(content, place)
        start = place + _CHUNK.size
        if start + length > len(content):
            return
        octets = content[start : start + length]
        if not kind and not content[place:].strip(b"\0"):  # left by a machine crash
            return
        if not _FULL <= kind <= _LAST or checksum != zlib.crc32(octets, zlib.crc32(bytes([kind]))):
            raise LogError(f"byte {place}", "found a chunk whose checksum does not fit")
        yield place, kind, octets
        place = start + length
