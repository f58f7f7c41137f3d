"""Reading back: one series, or one stat over all layers, at the resolution asked for.

What is asked for is covered by the coarsest tiles that serve, then by finer ones where those are
not made yet, and the newest steps by the frames themselves.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import decode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.buckets import (
    LEVELS,
    TILE_LAYERS,
    TILE_STEPS,
    Buckets,
    decode_tile,
    from_values,
    regroup,
)
from runwatch_server.telemetry.history import Stretch, effective_history
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.metric_tiles import decode_values
from runwatch_server.telemetry.queries import SegmentRow, TileRow

_MAX_RAW_STEPS: Final = 4096
"""Of a layer's series, beyond what was asked for: reading frames costs a millisecond for some 50
steps of 2400 values, so more than this is answered from 64-step buckets instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which part of a run is asked for."""

    rank: int = 0
    first_step: int | None = None
    last_step: int | None = None
    points: int = 1000
    attempt: int | None = None
    """With `segment`: this one's steps, even where they were undone; None: effective history."""
    segment: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values over steps; of one step each (`width` 1), or summed up over `width` steps."""

    width: int
    buckets: Buckets
    """Empty buckets are left out."""
    values: NDArray[np.float64] | None
    """(B, C) as recorded, NaN and infinity as themselves; None where `width` is over 1."""
    stretches: tuple[Stretch, ...]
    """Which attempt and segment speaks for which steps."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns asked for: a metric, a layer's stat, or a stat of all layers."""

    name: str
    layouts: dict[str, tuple[int, int]]
    """Hash of a layout -> first layer and number of layers in it; empty for a metric."""
    stat_starts: dict[str, int]
    """Hash of a layout -> column at which the stat begins."""
    num_columns: int

    @property
    def is_metric(self) -> bool:
        return not self.layouts


class Reader:
    """All that is read of a run's telemetry."""

    def __init__(self, database: Database, layouts: Layouts) -> None:
        self._database = database
        self._layouts = layouts

    async def metric_series(self, run_id: RunId, metric: str, window: Window) -> Series:
        """Raises NotFoundError for a metric that the run never sent."""
        async with self._database.read() as connection:
            if metric not in await queries.list_metrics(connection, run_id):
                raise NotFoundError("metric_not_found", f"The run has no metric {metric!r}.")
        return await self._read(run_id, _Wanted(metric, {}, {}, 1), window)

    async def layer_series(self, run_id: RunId, layer: str, stat: str, window: Window) -> Series:
        """Raises NotFoundError for a layer or stat that is in no layout of the run."""
        places: dict[str, tuple[int, int]] = {}
        starts: dict[str, int] = {}
        for layout in await self._layouts.all(run_id):
            if stat in layout.stats and layer in layout.layer_names:
                places[layout.hash] = (layout.layer_names.index(layer), 1)
                starts[layout.hash] = layout.stats.index(stat) * len(layout.layers)
        if not places:
            raise NotFoundError(
                "series_not_found", f"No layout of the run has the stat {stat!r} of {layer!r}."
            )
        return await self._read(run_id, _Wanted(stat, places, starts, 1), window)

    async def all_layers(self, run_id: RunId, stat: str, window: Window) -> tuple[Layout, Series]:
        """A stat of every layer of the newest layout that has it. Raises NotFoundError."""
        having = [lay for lay in await self._layouts.all(run_id) if stat in lay.stats]
        if not having:
            raise NotFoundError("stat_not_found", f"No layout of the run has the stat {stat!r}.")
        layout = having[-1]
        num_layers = len(layout.layers)
        wanted = _Wanted(
            stat,
            {layout.hash: (0, num_layers)},
            {layout.hash: layout.stats.index(stat) * num_layers},
            num_layers,
        )
        return layout, await self._read(run_id, wanted, window)

    async def _read(self, run_id: RunId, wanted: _Wanted, window: Window) -> Series:
        async with self._database.read() as connection:
            segments = await queries.list_segments(connection, run_id, window.rank)
            stretches = _stretches(segments, window)
            by_place = {(row.attempt, row.segment): row for row in segments}
            width = _width(stretches, window.points, is_metric=wanted.is_metric)
            if not wanted.is_metric and _were_removed(stretches, by_place):
                width = -(-width // LEVELS[0]) * LEVELS[0]
            pieces: list[Buckets] = []
            raw: list[NDArray[np.float64]] = []
            for stretch in stretches:
                segment = by_place[stretch.attempt, stretch.segment]
                source = _Source(connection, segment, wanted, stretch)
                if width == 1:
                    steps, values = await source.values()
                    pieces.append(from_values(steps, values))
                    raw.append(values)
                else:
                    pieces.extend(await source.buckets(width))
        if width == 1:
            return _raw_series(pieces, raw, stretches, wanted.num_columns)
        grouped = await asyncio.to_thread(regroup, pieces, width, wanted.num_columns)
        held = np.asarray((grouped.count + grouped.nonfinite).any(axis=1))
        return Series(width, _rows(grouped, held), None, tuple(stretches))


@dataclass(frozen=True, slots=True)
class _Source:
    """One stretch of a segment, read by columns."""

    connection: AsyncConnection
    segment: SegmentRow
    wanted: _Wanted
    stretch: Stretch

    async def values(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps (N,) and values (N, C) as recorded."""
        first, last = self.stretch.first_step, self.stretch.last_step
        if not self.wanted.is_metric:
            return await self._frame_values(first, last)
        rolled_to = min(self.segment.rolled_to, last + 1)
        parts = [await self._tile_values(first, rolled_to)] if first < rolled_to else []
        if rolled_to <= last:
            parts.append(await self._frame_values(max(first, rolled_to), last))
        steps, values = zip(*parts, strict=True)
        return np.concatenate(steps), np.concatenate(values)

    async def buckets(self, width: int) -> list[Buckets]:
        """Pieces that together cover the stretch, none wider than `width`."""
        pieces: list[Buckets] = []
        first, end = self.stretch.first_step, self.stretch.last_step + 1
        for level in reversed([level for level in LEVELS if level <= width]):
            covered, first = await self._tiles(level, first, min(end, self.segment.rolled_to))
            pieces.extend(covered)
        if first < end:
            steps, values = await self._tail(first, end)
            pieces.append(from_values(steps, values))
        return pieces

    async def _tail(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rest = _Source(
            self.connection,
            self.segment,
            self.wanted,
            Stretch(self.stretch.attempt, self.stretch.segment, first, end - 1),
        )
        return await rest.values()

    async def _tiles(self, level: int, first: int, end: int) -> tuple[list[Buckets], int]:
        """Buckets of whole tiles from `first` on, and the first step that they do not cover."""
        span = TILE_STEPS[level]
        end -= end % span
        if first >= end:
            return [], first
        found = await queries.tiles_of(
            self.connection,
            self.segment,
            level=level,
            first_step=first - first % span,
            before=end,
            layout_hashes=list(self.wanted.layouts) or [""],
            name=self.wanted.name,
            layer_tile=self._layer_tile(),
        )
        pieces = await asyncio.to_thread(_decode_tiles, found, self.wanted)
        return [_from_step(piece, first, level) for piece in pieces], end

    def _layer_tile(self) -> int | None:
        """The one tile that holds the layer, where all layouts agree on it."""
        tiles = {layer // TILE_LAYERS for layer, num in self.wanted.layouts.values() if num == 1}
        return tiles.pop() if len(tiles) == 1 else None

    async def _tile_values(
        self, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """A metric's values from tiles of level 1."""
        unit = TILE_STEPS[LEVELS[0]]
        start = first - first % unit
        found = await queries.tiles_of(
            self.connection,
            self.segment,
            level=1,
            first_step=start,
            before=end,
            layout_hashes=[""],
            name=self.wanted.name,
        )
        steps = [tile.first_step + np.arange(unit, dtype=np.int64) for tile in found]
        values = [decode_values(tile.data) for tile in found]
        if not found:
            return np.empty(0, np.int64), np.empty((0, 1))
        joined, within = np.concatenate(values), np.concatenate(steps)
        keep = (within >= first) & (within < end) & ~is_absent(joined)
        return within[keep], joined[keep, np.newaxis]

    async def _frame_values(
        self, first: int, last: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        stretch = Stretch(self.stretch.attempt, self.stretch.segment, first, last)
        bodies = await queries.frames_of_steps(
            self.connection, self.segment.run_id, self.segment.rank, stretch
        )
        return await asyncio.to_thread(_columns, bodies, self.wanted, first, last)


def _stretches(segments: Sequence[SegmentRow], window: Window) -> list[Stretch]:
    """What of the run is asked for, in order of steps."""
    all_stretches = [row.stretch for row in segments if window.attempt in (None, row.attempt)]
    if window.segment is not None:
        newest = max((stretch.attempt for stretch in all_stretches), default=0)
        history = [
            stretch
            for stretch in all_stretches
            if stretch.segment == window.segment and stretch.attempt == newest
        ]
    else:
        history = effective_history(all_stretches)
    first = window.first_step or 0
    last = 2**62 if window.last_step is None else window.last_step
    clipped = (stretch.clip(first, last) for stretch in history)
    return [stretch for stretch in clipped if stretch is not None]


def _width(stretches: Sequence[Stretch], points: int, *, is_metric: bool) -> int:
    """Steps a bucket, so that at most about `points` buckets come out; 1: values as recorded."""
    if not stretches:
        return 1
    num_steps = stretches[-1].last_step - stretches[0].first_step + 1
    width = -(-num_steps // points)
    if width == 1:
        return 1
    fits = [level for level in LEVELS if level <= width]
    if fits:
        return -(-width // fits[-1]) * fits[-1]
    return width if is_metric or num_steps <= _MAX_RAW_STEPS else LEVELS[0]


def _were_removed(
    stretches: Sequence[Stretch], segments: Mapping[tuple[int, int], SegmentRow]
) -> bool:
    """Whether frames of these steps were removed for their age: their rollups answer."""
    return any(
        stretch.first_step < segments[stretch.attempt, stretch.segment].raw_from
        for stretch in stretches
    )


def _decode_tiles(found: Sequence[TileRow], wanted: _Wanted) -> list[Buckets]:
    if wanted.is_metric or wanted.num_columns == 1:
        return [_decode_column(tile, wanted) for tile in found if _has_layer(tile, wanted)]
    by_step: dict[int, list[TileRow]] = {}
    for tile in sorted(found, key=lambda tile: tile.layer_tile):
        by_step.setdefault(tile.first_step, []).append(tile)
    return [
        _side_by_side([_decode(tile, None, is_metric=False) for tile in tiles])
        for tiles in by_step.values()
    ]


def _has_layer(tile: TileRow, wanted: _Wanted) -> bool:
    if wanted.is_metric:
        return True
    return tile.layer_tile == wanted.layouts[tile.layout_hash][0] // TILE_LAYERS


def _decode_column(tile: TileRow, wanted: _Wanted) -> Buckets:
    if wanted.is_metric:
        return _decode(tile, None, is_metric=True)
    return _decode(tile, wanted.layouts[tile.layout_hash][0] % TILE_LAYERS, is_metric=False)


def _decode(tile: TileRow, column: int | None, *, is_metric: bool) -> Buckets:
    return decode_tile(
        tile.data,
        first_step=tile.first_step,
        level=tile.level,
        is_metric=is_metric,
        column=column,
    )


def _side_by_side(tiles: list[Buckets]) -> Buckets:
    """Tiles of the same steps as one, their columns next to each other."""
    return Buckets(
        tiles[0].steps,
        np.concatenate([tile.low for tile in tiles], axis=1),
        np.concatenate([tile.high for tile in tiles], axis=1),
        np.concatenate([tile.mean for tile in tiles], axis=1),
        np.concatenate([tile.count for tile in tiles], axis=1),
        np.concatenate([tile.nonfinite for tile in tiles], axis=1),
    )


def _from_step(buckets: Buckets, first: int, level: int) -> Buckets:
    """Without the buckets that end before a step."""
    keep = buckets.steps + level > first
    return buckets if keep.all() else _rows(buckets, keep)


def _rows(buckets: Buckets, keep: NDArray[np.bool_]) -> Buckets:
    return Buckets(
        buckets.steps[keep],
        buckets.low[keep],
        buckets.high[keep],
        buckets.mean[keep],
        buckets.count[keep],
        buckets.nonfinite[keep],
    )


def _columns(
    bodies: Sequence[bytes], wanted: _Wanted, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The wanted columns of frames; steps at which nothing was recorded are left out.

    Only the wanted columns are kept of each frame: all of them would fill the memory.
    """
    steps = first + np.arange(last - first + 1, dtype=np.int64)
    matrix = np.full((len(steps), wanted.num_columns), ABSENT_64)
    for frame in map(decode_frame, bodies):
        columns = _wanted_columns(frame, wanted)
        start, stop = max(first, frame.first_step), min(last, frame.last_step) + 1
        if columns is not None and start < stop:
            part = columns[start - frame.first_step : stop - frame.first_step]
            np.copyto(matrix[start - first : stop - first], part, where=~is_absent(part))
    held = np.flatnonzero(~is_absent(matrix).all(axis=1))
    return steps[held], matrix[held]


def _wanted_columns(frame: Frame, wanted: _Wanted) -> NDArray[np.float64] | None:
    """(N, C); None where the frame has none of them."""
    if wanted.is_metric:
        if wanted.name not in frame.metric_names:
            return None
        return np.ascontiguousarray(frame.metrics[:, [frame.metric_names.index(wanted.name)]])
    if frame.layout_hash not in wanted.layouts:
        return None
    layer, num_layers = wanted.layouts[frame.layout_hash]
    start = wanted.stat_starts[frame.layout_hash] + layer
    # Widening turns the float32 that says 'not recorded' into the float64 that says it.
    return np.ascontiguousarray(frame.stats[:, start : start + num_layers]).astype(np.float64)


def _raw_series(
    pieces: list[Buckets],
    raw: list[NDArray[np.float64]],
    stretches: Sequence[Stretch],
    num_columns: int,
) -> Series:
    values = np.concatenate(raw) if raw else np.empty((0, num_columns))
    return Series(1, regroup(pieces, 1, num_columns), values, tuple(stretches))
