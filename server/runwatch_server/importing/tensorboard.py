"""Reads TensorBoard's event files: scalars as simple values and as tensors.

Field numbers: tensorboard/compat/proto/{event,summary,tensor,types}.proto.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.numbers import unix_time, whole_step
from runwatch_server.importing.protobuf import (
    WireError,
    as_bytes,
    as_float,
    as_int,
    as_text,
    fields,
    packed_varints,
    signed,
)
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.tfrecord import records

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5  # of Event
_VALUE = 1  # of Summary
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8  # of Summary.Value
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S = 1, 4, 5, 6, 7, 10  # of TensorProto
_DTYPES: Final = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}


def read_events(contents: list[bytes]) -> RawLog:
    """The log in the event files of one run, in order: a restarted job opens a new one. Raises
    LogError."""
    entries: list[Entry] = []
    skipped: dict[str, None] = {}
    for number, content in enumerate(contents, start=1):
        of_file = f" of file {number}" if len(contents) > 1 else ""
        for offset, record in records(content):
            place = f"byte {offset}{of_file}"
            try:
                entry = _entry(record, place, skipped)
            except WireError as error:
                raise LogError(place, f"found no event: {error}") from error
            if entry.values:
                entries.append(entry)
    notes = [f"{tag} is not a scalar: left out" for tag in skipped]
    return RawLog(entries, tuple(notes))


def _entry(record: bytes, place: str, skipped: dict[str, None]) -> Entry:
    step, at = 0, None
    values: dict[str, float] = {}
    for number, value in fields(record):
        if number == _WALL_TIME:
            at = unix_time(as_float(value))
        elif number == _STEP:
            step = whole_step(signed(as_int(value)), place)
        elif number == _SUMMARY:
            for tag, scalar in _scalars(as_bytes(value)):
                if scalar is None:
                    skipped[tag] = None
                else:
                    values[tag] = scalar
    return Entry(place, step, at, values)


def _scalars(summary: bytes) -> Iterator[tuple[str, float | None]]:
    """Tag and number of each value; None if it is not a scalar."""
    for number, value in fields(summary):
        if number == _VALUE:
            yield _scalar(as_bytes(value))


def _scalar(message: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in fields(message):
        if number == _TAG:
            tag = as_text(value)
        elif number == _SIMPLE_VALUE:
            scalar = as_float(value)
        elif number == _TENSOR:
            scalar = _only_number(as_bytes(value))
    return tag, scalar


def _only_number(tensor: bytes) -> float | None:
    """The number in a tensor that holds one; None for any other tensor."""
    dtype = ""
    found: list[float] = []
    content = b""
    for number, value in fields(tensor):
        if number == _DTYPE:
            dtype = _DTYPES.get(as_int(value), "")
        elif number == _CONTENT:
            content = as_bytes(value)
        elif number in (_FLOATS, _DOUBLES):
            octets = as_bytes(value)
            width = "<f4" if number == _FLOATS else "<f8"
            if len(octets) % np.dtype(width).itemsize:
                raise WireError(f"found {len(octets)} bytes of {width}")
            found += np.frombuffer(octets, width).tolist()
        elif number in (_INTS, _INT64S):
            numbers = [value] if isinstance(value, int) else packed_varints(value)
            found += [float(signed(one)) for one in numbers]
    if dtype and len(content) == np.dtype(dtype).itemsize:
        found += np.frombuffer(content, dtype).astype(np.float64).tolist()
    return found[0] if dtype and len(found) == 1 else None
