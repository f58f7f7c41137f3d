"""What a pack holds and where in it. Kept in the database, so that a reader requests nothing of the
object but the tiles that it needs, and knows what is missing if the object is."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Final

import msgspec

from runwatch import zstd

TILE_ROWS: Final = 1024
TILE_COLUMNS: Final = 32
"""Columns per tile. With 1024 rows a tile has some 100 KB, compressed: a layer's series of a
thousand steps is one read."""
MAGIC: Final = b"RWP1"


class Kind(IntEnum):
    """The two tables of numbers of a shape; the value is the number of bytes per number."""

    METRICS = 8
    """Times and metrics: column 0 is the time of a step, column 1 + m is metric m."""
    STATS = 4


class PackedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A frame without its numbers; its sequence number follows from its place."""

    first_step: int
    num_steps: int
    shape: int
    checksum: int
    """The checksum of the body as received: the same frame with another one is a different
    frame."""
    late: bool
    received_at: float


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """Frames with the same columns; their rows follow each other in one table."""

    layout_hash: str
    num_columns: int
    metric_names: tuple[str, ...]
    num_rows: int

    def columns(self, kind: Kind) -> int:
        return 1 + len(self.metric_names) if kind is Kind.METRICS else self.num_columns


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a pack. Tiles stand in the object shape by shape, metrics before stats, by
    rows and then columns; the events of all frames, if there are any, follow them."""

    first_seq: int
    segment: int
    frames: tuple[PackedFrame, ...]
    shapes: tuple[Shape, ...]
    tile_bytes: tuple[int, ...]
    tile_digests: tuple[bytes, ...]
    """SHA-256 of each tile: whoever may write to the store of objects cannot change what is
    read."""
    event_bytes: int
    """Of the events of all frames, unpacked; 0 if there are none."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.frames) - 1

    def encode(self) -> bytes:
        return zstd.compress(msgspec.msgpack.encode(self))

    @classmethod
    def decode(cls, packed: bytes) -> "Contents":
        return msgspec.msgpack.decode(zstd.decompress(packed), type=cls)


@dataclass(frozen=True, slots=True)
class TilePlace:
    """A tile: where it is in the object, and which part of a shape's table it holds."""

    start: int
    end: int
    digest: bytes
    raw_bytes: int
    """Unpacked."""
    first_row: int
    num_rows: int
    first_column: int
    num_columns: int


class Directory:
    """Where everything is in the object, computed once from a pack's contents."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._ends = list(accumulate(contents.tile_bytes, initial=len(MAGIC)))
        self._first_tiles: dict[tuple[int, Kind], int] = {}
        num_tiles = 0
        for number, shape in enumerate(contents.shapes):
            for kind in Kind:
                self._first_tiles[number, kind] = num_tiles
                num_tiles += _blocks(shape.num_rows, TILE_ROWS) * _blocks(
                    shape.columns(kind), TILE_COLUMNS
                )
        rows = [0] * len(contents.shapes)
        self.first_rows: list[int] = []
        """The first row of each frame in its shape's tables."""
        for frame in contents.frames:
            self.first_rows.append(rows[frame.shape])
            rows[frame.shape] += frame.num_steps

    def tiles(self, shape: int, kind: Kind, rows: range, columns: range) -> Iterator[TilePlace]:
        """The tiles that hold any of these rows and columns."""
        held = self.contents.shapes[shape]
        num_columns = held.columns(kind)
        across = _blocks(num_columns, TILE_COLUMNS)
        if not rows or not columns:
            return
        for block in range(rows.start // TILE_ROWS, (rows.stop - 1) // TILE_ROWS + 1):
            for place in range(
                columns.start // TILE_COLUMNS, (columns.stop - 1) // TILE_COLUMNS + 1
            ):
                number = self._first_tiles[shape, kind] + block * across + place
                num_rows = min(TILE_ROWS, held.num_rows - block * TILE_ROWS)
                wide = min(TILE_COLUMNS, num_columns - place * TILE_COLUMNS)
                yield TilePlace(
                    start=self._ends[number],
                    end=self._ends[number + 1],
                    digest=self.contents.tile_digests[number],
                    raw_bytes=num_rows * wide * kind,
                    first_row=block * TILE_ROWS,
                    num_rows=num_rows,
                    first_column=place * TILE_COLUMNS,
                    num_columns=wide,
                )

    @property
    def events(self) -> TilePlace | None:
        """Where the events are; None if there are none."""
        held = self.contents
        if not held.event_bytes:
            return None
        start, end = self._ends[-2:]
        return TilePlace(start, end, held.tile_digests[-1], held.event_bytes, 0, 0, 0, 0)


def _blocks(number: int, size: int) -> int:
    return -(-number // size)
