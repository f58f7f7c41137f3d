"""Assembles tiles: into columns, or into frames as they were sent. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from runwatch.frames import Event, Frame
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.packs.contents import Directory, Kind, TilePlace
from runwatch_server.telemetry.packs.encoding import Numbers, decode_events, decode_tile
from runwatch_server.telemetry.packs.queries import PackRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Columns of a shape's table."""

    kind: Kind
    columns: range
    targets: NDArray[np.int64] | None = None
    """The columns of the answer in which they stand; None: all, in order."""


Places = Callable[[str, tuple[str, ...]], Place | None]
"""Where frames of a layout (by its hash) with these metrics have the requested columns; None:
nowhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some columns of consecutive steps of one frame."""

    seq: int
    first_step: int
    values: NDArray[np.float64]
    """(N, C)"""
    targets: NDArray[np.int64] | None = None
    """(C,) the columns of the answer in which they stand; None: all, in order."""

    @property
    def end(self) -> int:
        """The step after its last."""
        return self.first_step + len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class UnpackedFrame:
    """A frame as it was sent."""

    frame: Frame
    late: bool
    received_at: float


@dataclass(slots=True)
class Found(Generic[T]):
    """What was read, and the gaps of what could not be."""

    items: list[T] = field(default_factory=list[T])
    gaps: list[Gap] = field(default_factory=list[Gap])

    def __iadd__(self, other: "Found[T]") -> "Found[T]":
        self.items += other.items
        self.gaps += other.gaps
        return self


class Table:
    """Some rows and columns of a shape's table, assembled from tiles."""

    def __init__(self, shape: int, rows: range, place: Place) -> None:
        self.shape = shape
        self.rows = rows
        self.place = place
        size = (len(rows), len(place.columns))
        self.values: Numbers = (
            np.full(size, ABSENT_64) if place.kind is Kind.METRICS else np.full(size, ABSENT_32)
        )
        self._missing: list[tuple[range, GapReason]] = []

    def tiles(self, directory: Directory) -> list[TilePlace]:
        """The tiles that make up the table."""
        return list(directory.tiles(self.shape, self.place.kind, self.rows, self.place.columns))

    def put_all(self, tiles: Sequence[TilePlace], octets: Sequence[bytes]) -> None:
        for tile, part in zip(tiles, octets, strict=True):
            numbers = decode_tile(part, tile, self.place.kind)
            if numbers is None:
                self.miss(tile, GapReason.CORRUPT)
            else:
                self._put(tile, numbers)

    def miss(self, tile: TilePlace, reason: GapReason) -> None:
        """Mark the tile's rows as missing, even if another tile holds some of their columns."""
        self._missing.append((_overlap(self.rows, tile.first_row, tile.num_rows), reason))

    def of(self, rows: range) -> Numbers:
        """The values of rows."""
        return self.values[rows.start - self.rows.start : rows.stop - self.rows.start]

    def fates(self, rows: range) -> Iterator[tuple[range, GapReason | None]]:
        """Split rows where they begin or stop missing; each part with the reason, or None if it is
        there."""
        edges = {rows.start, rows.stop}
        for missing, _ in self._missing:
            edges |= {edge for edge in (missing.start, missing.stop) if edge in rows}
        cuts = sorted(edges)
        for start, stop in pairwise(cuts):
            reasons = (reason for missing, reason in self._missing if start in missing)
            yield range(start, stop), next(reasons, None)

    def holds(self, rows: range) -> bool:
        """Whether none of these rows is missing."""
        return all(reason is None for _, reason in self.fates(rows))

    def _put(self, tile: TilePlace, numbers: Numbers) -> None:
        rows = _overlap(self.rows, tile.first_row, tile.num_rows)
        columns = _overlap(self.place.columns, tile.first_column, tile.num_columns)
        here = _shifted(columns, self.place.columns.start)
        there = _shifted(columns, tile.first_column)
        self.values[_shifted(rows, self.rows.start), here] = numbers[
            _shifted(rows, tile.first_row), there
        ]


def widened(values: Numbers) -> NDArray[np.float64]:
    """Values as float64. 'Not recorded' of float32 becomes that of float64; a signalling NaN
    becomes a quiet one, without numpy's warning."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def rows_of(directory: Directory, shape: int, first_step: int, last_step: int) -> range:
    """The rows of a shape from the first frame that holds any of these steps to the last."""
    frames = list(_frames_of(directory, shape, first_step, last_step))
    return range(frames[0][1].start, frames[-1][1].stop) if frames else range(0)


def parts_of(pack: PackRow, table: Table, first_step: int, last_step: int) -> Found[Part]:
    """Each frame's rows as float64; missing ones become gaps."""
    found: Found[Part] = Found()
    contents = pack.directory.contents
    for number, rows in _frames_of(pack.directory, table.shape, first_step, last_step):
        for part, reason in table.fates(rows):
            first = contents.frames[number].first_step + part.start - rows.start
            if reason is None:
                values = widened(table.of(part))
                seq = pack.first_seq + number
                found.items.append(Part(seq, first, values, table.place.targets))
            else:
                found.gaps.append(pack.gap(first, first + len(part) - 1, reason))
    return found


def unpack_frames(pack: PackRow, wanted: range, whole: bytes) -> Found[UnpackedFrame]:
    """The frames at these places of the pack, decoded from the whole object's bytes."""
    found: Found[UnpackedFrame] = Found()
    directory = pack.directory
    events = _events(directory, whole)
    tables = _tables(directory, wanted, whole)
    for number in wanted:
        packed = directory.contents.frames[number]
        shape = directory.contents.shapes[packed.shape]
        metrics, stats = tables[packed.shape]
        rows = _rows(directory, number)
        if events is None or not (metrics.holds(rows) and stats.holds(rows)):
            last_step = packed.first_step + max(packed.num_steps, 1) - 1
            found.gaps.append(pack.gap(packed.first_step, last_step, GapReason.CORRUPT))
            continue
        numbers = metrics.of(rows)
        frame = Frame(
            attempt=pack.attempt,
            rank=pack.rank,
            seq=pack.first_seq + number,
            segment=pack.segment,
            first_step=packed.first_step,
            times=np.ascontiguousarray(numbers[:, 0], np.float64),
            metric_names=shape.metric_names,
            metrics=np.ascontiguousarray(numbers[:, 1:], np.float64),
            layout_hash=shape.layout_hash,
            stats=np.ascontiguousarray(stats.of(rows), np.float32),
            events=events[number],
        )
        found.items.append(UnpackedFrame(frame, packed.late, packed.received_at))
    return found


def holds(pack: PackRow, whole: bytes, frames: Sequence[Frame]) -> bool:
    """Whether every frame of the pack can be decoded from its bytes as it was, exact to the bit."""
    found = unpack_frames(pack, range(len(frames)), whole)
    unpacked = [one.frame for one in found.items]
    return [*map(_bits, unpacked)] == [*map(_bits, frames)]


def _bits(frame: Frame) -> tuple[object, ...]:
    """Everything that two equal frames have in common; NaNs by their bits."""
    return (
        (frame.attempt, frame.rank, frame.seq, frame.segment, frame.first_step),
        (frame.metric_names, frame.layout_hash, frame.events),
        (frame.times.tobytes(), frame.metrics.tobytes(), frame.stats.tobytes()),
    )


def _events(directory: Directory, whole: bytes) -> list[tuple[Event, ...]] | None:
    """The events of each frame; None if they cannot be read."""
    place = directory.events
    if place is None:
        return [()] * len(directory.contents.frames)
    return decode_events(whole[place.start : place.end], place)


def _tables(directory: Directory, wanted: range, whole: bytes) -> dict[int, tuple[Table, Table]]:
    """The metrics and stats of each shape of these frames, with the frames' rows."""
    spans: dict[int, range] = {}
    for number in wanted:
        shape, rows = directory.contents.frames[number].shape, _rows(directory, number)
        spans[shape] = range(spans.get(shape, rows).start, rows.stop)
    return {
        shape: (
            _filled(directory, shape, Kind.METRICS, rows, whole),
            _filled(directory, shape, Kind.STATS, rows, whole),
        )
        for shape, rows in spans.items()
    }


def _filled(directory: Directory, shape: int, kind: Kind, rows: range, whole: bytes) -> Table:
    num_columns = directory.contents.shapes[shape].columns(kind)
    table = Table(shape, rows, Place(kind, range(num_columns)))
    tiles = table.tiles(directory)
    table.put_all(tiles, [whole[tile.start : tile.end] for tile in tiles])
    return table


def _frames_of(
    directory: Directory, shape: int, first_step: int, last_step: int
) -> Iterator[tuple[int, range]]:
    """The frames of a shape that hold any of these steps: their places and rows."""
    for number, frame in enumerate(directory.contents.frames):
        is_near = frame.first_step <= last_step
        is_near &= frame.first_step + frame.num_steps > first_step
        if frame.shape == shape and frame.num_steps and is_near:
            yield number, _rows(directory, number)


def _rows(directory: Directory, number: int) -> range:
    start = directory.first_rows[number]
    return range(start, start + directory.contents.frames[number].num_steps)


def _overlap(wanted: range, start: int, length: int) -> range:
    return range(max(wanted.start, start), min(wanted.stop, start + length))


def _shifted(numbers: range, by: int) -> slice:
    return slice(numbers.start - by, numbers.stop - by)
