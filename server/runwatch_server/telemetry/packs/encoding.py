"""Encodes frames as a pack's bytes, and decodes tiles to numbers, exact to the bit. No I/O."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch import zstd
from runwatch.codec import shuffle, unshuffle
from runwatch.frames import Event, Frame
from runwatch_server.telemetry.packs.contents import (
    MAGIC,
    TILE_COLUMNS,
    TILE_ROWS,
    Contents,
    Kind,
    PackedFrame,
    Shape,
    TilePlace,
)

Numbers = NDArray[np.float64] | NDArray[np.float32]

_ShapeKey = tuple[str, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class FrameToPack:
    """A frame and what the database knows about it."""

    frame: Frame
    checksum: int
    late: bool
    received_at: float

    @property
    def raw_bytes(self) -> int:
        return self.frame.stats.nbytes + self.frame.metrics.nbytes + self.frame.times.nbytes


def encode_pack(stored: Sequence[FrameToPack]) -> tuple[bytes, Contents]:
    """The bytes of an object and its contents. The frames are of one segment and have consecutive
    sequence numbers."""
    keys: dict[_ShapeKey, int] = {}
    members: list[list[Frame]] = []
    packed: list[PackedFrame] = []
    for one in stored:
        number = keys.setdefault(_key(one.frame), len(keys))
        if number == len(members):
            members.append([])
        members[number].append(one.frame)
        packed.append(
            PackedFrame(
                first_step=one.frame.first_step,
                num_steps=one.frame.num_steps,
                shape=number,
                checksum=one.checksum,
                late=one.late,
                received_at=one.received_at,
            )
        )
    tiles = [tile for frames in members for kind in Kind for tile in _tiles(frames, kind)]
    events = b""
    if any(one.frame.events for one in stored):
        events = msgspec.msgpack.encode([one.frame.events for one in stored])
        tiles.append(zstd.compress(events))
    contents = Contents(
        first_seq=stored[0].frame.seq,
        segment=stored[0].frame.segment,
        frames=tuple(packed),
        shapes=tuple(
            Shape(*key, num_rows=sum(frame.num_steps for frame in frames))
            for key, frames in zip(keys, members, strict=True)
        ),
        tile_bytes=tuple(len(tile) for tile in tiles),
        tile_digests=tuple(hashlib.sha256(tile).digest() for tile in tiles),
        event_bytes=len(events),
    )
    return MAGIC + b"".join(tiles), contents


def decode_tile(octets: bytes, place: TilePlace, kind: Kind) -> Numbers | None:
    """A tile's numbers, (rows, columns); None if these are not the bytes that were written."""
    raw = _unpacked(octets, place)
    if raw is None:
        return None
    numbers = np.frombuffer(unshuffle(raw, kind), f"<f{kind.value}")
    return numbers.reshape(place.num_rows, place.num_columns)


def decode_events(octets: bytes, place: TilePlace) -> list[tuple[Event, ...]] | None:
    """The events of each frame; None if these are not the bytes that were written."""
    raw = _unpacked(octets, place)
    return None if raw is None else msgspec.msgpack.decode(raw, type=list[tuple[Event, ...]])


def _unpacked(octets: bytes, place: TilePlace) -> bytes | None:
    """A tile unpacked; None, before any memory is taken for it, if it is not the one that was
    written or does not have the size that the index says."""
    if hashlib.sha256(octets).digest() != place.digest:
        return None
    try:
        is_as_large = zstd.declared_bytes(octets) == place.raw_bytes
        return zstd.decompress(octets) if is_as_large else None
    except zstd.ZstdError:
        return None


def _key(frame: Frame) -> _ShapeKey:
    num_columns = frame.stats.shape[1] if frame.layout_hash else 0
    return (frame.layout_hash, num_columns, frame.metric_names)


def _tiles(frames: Sequence[Frame], kind: Kind) -> Iterator[bytes]:
    """The tiles of a table, made one block of rows at a time: a copy of the whole would double the
    memory."""
    for rows in _blocks_of_rows(frames, kind):
        for start in range(0, rows.shape[1], TILE_COLUMNS):
            tile: Any = np.ascontiguousarray(rows[:, start : start + TILE_COLUMNS])
            yield zstd.compress(shuffle(tile))


def _blocks_of_rows(frames: Sequence[Frame], kind: Kind) -> Iterator[Numbers]:
    waiting: list[Any] = []  # concatenating loses the union in numpy's types
    num_waiting = 0
    for frame in frames:
        rows: Any = _table(frame, kind)
        while num_waiting + len(rows) >= TILE_ROWS:
            split = TILE_ROWS - num_waiting
            yield np.concatenate([*waiting, rows[:split]])
            waiting, num_waiting, rows = [], 0, rows[split:]
        if len(rows):
            waiting.append(rows)
            num_waiting += len(rows)
    if num_waiting:
        yield np.concatenate(waiting)


def _table(frame: Frame, kind: Kind) -> Numbers:
    if kind is Kind.STATS:
        num_columns = frame.stats.shape[1] if frame.layout_hash else 0
        return frame.stats.astype("<f4", copy=False).reshape(frame.num_steps, num_columns)
    size = (frame.num_steps, len(frame.metric_names))
    metrics = frame.metrics.astype("<f8", copy=False).reshape(size)
    return np.concatenate([frame.times.astype("<f8", copy=False)[:, np.newaxis], metrics], axis=1)
