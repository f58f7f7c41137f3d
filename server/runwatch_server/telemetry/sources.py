"""Reads one stretch of a segment by columns: from tiles where there are any, else from frames."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.nonfinite import is_absent
from runwatch_server.telemetry import tile_queries
from runwatch_server.telemetry.buckets import (
    LEVELS,
    TILE_LAYERS,
    TILE_STEPS,
    Buckets,
    decode_grid,
    decode_tile,
    from_stretch,
)
from runwatch_server.telemetry.coverage import are_held
from runwatch_server.telemetry.gaps import Gap
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.metric_tiles import decode_values
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.stored_steps import StoredSteps
from runwatch_server.telemetry.tile_queries import TileRow
from runwatch_server.telemetry.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Source:
    """One stretch of a segment, read by columns."""

    connection: AsyncConnection
    packs: PackReader
    segment: SegmentRow
    wanted: Wanted
    stretch: Stretch
    gaps: list[Gap]
    """Collects stored steps that could not be read."""

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
        levels = [level for level in LEVELS if level <= width]
        first, end = self.stretch.first_step, self.stretch.last_step + 1
        return await self._pieces(levels, first, end, width)

    async def _pieces(
        self, levels: Sequence[int], first: int, end: int, width: int
    ) -> list[Buckets]:
        """Pieces from tiles of these levels, of which the last is the coarsest, and from the steps
        themselves where tiles do not reach."""
        if first >= end:
            return []
        if not levels:
            steps, values = await self._values_of(first, end)
            return await asyncio.to_thread(from_stretch, steps, values, width)
        *finer, level = levels
        begin = await self._first_bucket(level, first)
        summed_to = self.segment.rolled_to - self.segment.rolled_to % TILE_STEPS[level]
        stop = await self._end_bucket(level, min(end, summed_to))
        if begin >= stop:
            return await self._pieces(finer, first, end, width)
        return [
            *await self._pieces(finer, first, begin, width),
            *await self._tiles(level, begin, stop),
            *await self._pieces(finer, stop, end, width),
        ]

    async def _first_bucket(self, level: int, first: int) -> int:
        """The step from which on buckets of a level can be used for a stretch that begins at
        `first`. A bucket that begins earlier includes steps outside the stretch, undone ones or
        ones not requested. If nothing finer is left, it is used all the same."""
        whole = -(-first // level) * level
        if first == whole or first <= self.segment.first_step:
            return first
        is_all = level == LEVELS[0] and await self._are_removed(first, whole)
        return first if is_all else whole

    async def _end_bucket(self, level: int, end: int) -> int:
        """The step up to which buckets of a level can be used for a stretch that ends before `end`:
        of a bucket that ends later, under the same conditions as for one that begins earlier."""
        whole = end // level * level
        if end == whole or end > self.segment.last_step:
            return -(-end // level) * level
        is_all = level == LEVELS[0] and await self._are_removed(whole, end)
        return whole + level if is_all else whole

    async def _are_removed(self, first: int, end: int) -> bool:
        """Whether only rollups are left of a layer's steps."""
        if self.wanted.is_metric or first >= self.segment.raw_from:
            return False
        steps = replace(self.stretch, first_step=first, last_step=end - 1)
        return not await are_held(self.connection, self.segment, steps)

    async def _values_of(
        self, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        stretch = replace(self.stretch, first_step=first, last_step=end - 1)
        return await replace(self, stretch=stretch).values()

    async def _tiles(self, level: int, first: int, end: int) -> list[Buckets]:
        """The buckets of a level that overlap [first, end); `end` is the end of a bucket."""
        found = await tile_queries.tiles_of(
            self.connection,
            self.segment,
            level=level,
            first_step=first - first % TILE_STEPS[level],
            before=end,
            layout_hashes=list(self.wanted.layouts) or [""],
            name=self.wanted.name,
            layer_tile=self._layer_tile(),
        )
        pieces = await asyncio.to_thread(_decode_tiles, found, self.wanted)
        return [_within(piece, first, end, level) for piece in pieces]

    def _layer_tile(self) -> int | None:
        """The one tile that holds the layer, if it is the same in all layouts."""
        if self.wanted.num_columns != 1:
            return None
        tiles = {layer // TILE_LAYERS for layer, num in self.wanted.layouts.values() if num == 1}
        return tiles.pop() if len(tiles) == 1 else None

    async def _tile_values(
        self, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """A metric's values from tiles of level 1."""
        unit = TILE_STEPS[LEVELS[0]]
        start = first - first % unit
        found = await tile_queries.tiles_of(
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
        stored = StoredSteps(self.connection, self.packs, self.segment.run_id, self.segment.rank)
        found = await stored.columns(stretch, self.wanted)
        self.gaps.extend(found.gaps)
        return found.steps, found.values


def _decode_tiles(found: Sequence[TileRow], wanted: Wanted) -> list[Buckets]:
    if wanted.is_metric or wanted.num_columns == 1:
        return [_decode_column(tile, wanted) for tile in found if _has_layer(tile, wanted)]
    grids: dict[str, dict[tuple[int, int], bytes]] = {}
    for tile in found:
        grids.setdefault(tile.layout_hash, {})[tile.first_step, tile.layer_tile] = tile.data
    return [
        decode_grid(grid, level=found[0].level, num_columns=wanted.layouts[layout_hash][1]).spread(
            wanted.targets.get(layout_hash), wanted.num_columns
        )
        for layout_hash, grid in grids.items()
    ]


def _has_layer(tile: TileRow, wanted: Wanted) -> bool:
    if wanted.is_metric:
        return True
    return tile.layer_tile == wanted.layouts[tile.layout_hash][0] // TILE_LAYERS


def _decode_column(tile: TileRow, wanted: Wanted) -> Buckets:
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


def _within(buckets: Buckets, first: int, end: int, level: int) -> Buckets:
    """The buckets without those that end before `first`, or begin at `end` or later."""
    keep = (buckets.steps + level > first) & (buckets.steps < end)
    return buckets if keep.all() else buckets.rows(keep)
