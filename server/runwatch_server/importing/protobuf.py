"""Parses protocol buffers, as far as two log formats need it.

A message is a sequence of fields, each a key (number and wire type) and a value
(https://protobuf.dev/programming-guides/encoding/). Reading only the wanted fields takes a page;
the generated classes would bring the whole schema of TensorFlow or W&B.
"""

import struct
from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_FIXED_64: Final = 1
_LENGTH: Final = 2
_FIXED_32: Final = 5
_MAX_VARINT_BYTES: Final = 10

Field = int | bytes
"""A varint, or the bytes of a value with a fixed or stated length."""


class WireError(ValueError):
    """The bytes are not a message."""


def fields(message: bytes) -> Iterator[tuple[int, Field]]:
    """Number and value of each field, in order. Raises WireError."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire_type = key & 7
        if wire_type == _VARINT:
            value: Field
            value, place = _varint(message, place)
        else:
            size, place = _size(message, place, wire_type)
            if place + size > len(message):
                raise WireError(f"found a field of {size} bytes with {len(message) - place} left")
            value = message[place : place + size]
            place += size
        yield key >> 3, value


def packed_varints(octets: bytes) -> list[int]:
    values: list[int] = []
    place = 0
    while place < len(octets):
        value, place = _varint(octets, place)
        values.append(value)
    return values


def signed(varint: int) -> int:
    """An int64 from the 64-bit varint of the wire."""
    return varint - 2**64 if varint >= 2**63 else varint


def as_bytes(value: Field) -> bytes:
    """The value of a field that has a length. Raises WireError for any other."""
    if isinstance(value, int):
        raise WireError("found a number where bytes were wanted")
    return value


def as_int(value: Field) -> int:
    """The value of a varint. Raises WireError for any other."""
    if not isinstance(value, int):
        raise WireError("found bytes where a number was wanted")
    return value


def as_text(value: Field) -> str:
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"found a text that is no UTF-8: {error}") from error


def as_float(value: Field) -> float:
    """The value of a float or a double. Raises WireError for any other."""
    octets = as_bytes(value)
    if len(octets) not in (4, 8):
        raise WireError(f"found {len(octets)} bytes, wanted a float's 4 or a double's 8")
    number: float
    (number,) = struct.unpack("<f" if len(octets) == 4 else "<d", octets)
    return number


def _size(message: bytes, place: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _LENGTH:
        return _varint(message, place)
    sizes = {_FIXED_64: 8, _FIXED_32: 4}
    if wire_type not in sizes:
        raise WireError(f"found the wire type {wire_type}, wanted 0, 1, 2 or 5")
    return sizes[wire_type], place


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if place + index >= len(message):
            raise WireError("found the end within a number")
        octet = message[place + index]
        value |= (octet & 0x7F) << (7 * index)
        if octet < 0x80:
            return value & (2**64 - 1), place + index + 1
    raise WireError("found a number of more than 10 bytes")
