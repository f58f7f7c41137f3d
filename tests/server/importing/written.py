"""Logs as their programs write them, byte by byte: the readers share no code with this."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence

_BLOCK_BYTES = 32768


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def lengthed(field: int, octets: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(octets)) + octets


def crc32c(octets: bytes) -> int:
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def masked(octets: bytes) -> bytes:
    crc = crc32c(octets)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(octets: bytes) -> bytes:
    length = struct.pack("<Q", len(octets))
    return length + masked(length) + octets + masked(octets)


def event(step: int, tag: str, value: bytes, *, at: float = 1.7e9) -> bytes:
    """A record of an event file; `value` is the part of Summary.Value after its tag."""
    summary = lengthed(1, lengthed(1, tag.encode()) + value)
    head = b"\x09" + struct.pack("<d", at + step) + (b"\x10" + varint(step) if step else b"")
    return tfrecord(head + lengthed(5, summary))


def simple_value(number: float) -> bytes:
    return b"\x15" + struct.pack("<f", number)


def tensor(number: float) -> bytes:
    """A scalar as TensorFlow 2 writes it: a float tensor, here in its packed list of floats."""
    return lengthed(8, b"\x08\x01" + lengthed(5, struct.pack("<f", number)))


def tensor_of_bytes(number: float) -> bytes:
    """The same, as a double in the tensor's raw content."""
    return lengthed(8, b"\x08\x02" + lengthed(4, struct.pack("<d", number)))


def text_tensor(text: str) -> bytes:
    return lengthed(8, b"\x08\x07" + lengthed(8, text.encode()))


def event_file(*events: bytes) -> bytes:
    version = b"\x09" + struct.pack("<d", 1.7e9) + lengthed(3, b"brain.Event:2")
    return tfrecord(version) + b"".join(events)


def history(row: Mapping[str, object], step: int) -> bytes:
    """A record of W&B with one row of its history."""
    items = b"".join(
        lengthed(1, lengthed(2, name.encode()) + lengthed(16, json.dumps(value).encode()))
        for name, value in row.items()
    )
    return lengthed(2, items + lengthed(2, b"\x08" + varint(step)))


def wandb_file(records: Sequence[bytes]) -> bytes:
    content = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for record in records:
        _append(content, record)
    return bytes(content)


def _append(content: bytearray, record: bytes) -> None:
    is_first = True
    while True:
        left = _BLOCK_BYTES - len(content) % _BLOCK_BYTES
        if left < 7:
            content += bytes(left)
            left = _BLOCK_BYTES
        part, record = record[: left - 7], record[left - 7 :]
        kind = (1 if is_first else 4) if not record else (2 if is_first else 3)
        checksum = zlib.crc32(bytes([kind]) + part)
        content += struct.pack("<IHB", checksum, len(part), kind) + part
        is_first = False
        if not record:
            return
