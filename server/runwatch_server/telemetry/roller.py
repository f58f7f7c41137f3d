"""Sums up finished stretches of steps, so that a million of them can be read at once.

Every 1024 steps that a segment has left behind become tiles of 64-step buckets; 16 of those
become a tile of 512-step buckets, 8 of those one of 4096. Metrics are kept step by step as well
(level 1): they are few, and their charts are looked at closely. Each stretch is one write, with
the mark that says how far it went: a service killed in the middle sums up the stretch again.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch_server.db import Database
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.buckets import (
    LEVELS,
    TILE_LAYERS,
    TILE_STEPS,
    Buckets,
    decode_tile,
    encode_tile,
    from_values,
    regroup,
    summarise,
)
from runwatch_server.telemetry.coverage import first_held
from runwatch_server.telemetry.dense import lay_out
from runwatch_server.telemetry.gaps import GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.metric_tiles import encode_values
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.queries import SegmentRow, TileRow
from runwatch_server.telemetry.stored_steps import StoredSteps

log = logging.getLogger(__name__)

_UNIT: Final = TILE_STEPS[LEVELS[0]]
_SETTLED: Final = 64
"""A stretch is summed up when so many steps lie behind it: metrics of its last steps may come a
little later. What comes later still is not lost: the stretch is summed up again."""
_MAX_SEGMENTS: Final = 256
_MAX_UNITS: Final = 64
"""Of one segment at a time, so that one long import does not keep the others waiting."""


class Roller:
    def __init__(self, database: Database, layouts: Layouts, packs: PackReader) -> None:
        self._database = database
        self._layouts = layouts
        self._packs = packs

    async def roll(self) -> int:
        """Sums up what is finished; returns how many stretches of 1024 steps."""
        async with self._database.read() as connection:
            found = await queries.list_unrolled(connection, _UNIT + _SETTLED, _MAX_SEGMENTS)
        return sum([await self._roll_segment(segment) for segment in found])

    async def _roll_segment(self, segment: SegmentRow) -> int:
        settled = segment.last_step - _SETTLED
        rolled_to = segment.rolled_to
        for num_done in range(_MAX_UNITS):
            if rolled_to + _UNIT > settled:
                return num_done
            end = await self._roll_unit(segment, rolled_to, settled)
            if end is None:
                return num_done
            rolled_to = end
        return _MAX_UNITS

    async def _roll_unit(self, segment: SegmentRow, first_step: int, settled: int) -> int | None:
        """The step up to which the segment is summed up then: the unit's end, or, of a unit that
        holds nothing, the next that does. None where frames came, or were packed, while it was
        summed up, or where some cannot be had now."""
        end = first_step + _UNIT
        stretch = Stretch(segment.attempt, segment.segment, first_step, end - 1)
        async with self._database.read() as connection:
            stored = StoredSteps(connection, self._packs, segment.run_id, segment.rank)
            found = await stored.frames(stretch)
            if not found.frames and not found.gaps:
                stretch = replace(stretch, last_step=settled // _UNIT * _UNIT - 1)
                held = await first_held(connection, segment, stretch)
                end = max(end, held // _UNIT * _UNIT)
                stretch = replace(stretch, last_step=end - 1)
        if any(gap.reason is GapReason.LATE for gap in found.gaps):
            return None  # summed up when the object store answers; what is lost never comes
        frames = found.frames
        hashes = {frame.layout_hash for frame in frames if frame.layout_hash}
        layouts = {
            layout_hash: await self._layouts.find(segment.run_id, layout_hash)
            for layout_hash in hashes
        }
        tiles = await asyncio.to_thread(_unit_tiles, frames, layouts, first_step)
        ends = {level: _end_of_tile(level, first_step) for level in LEVELS[1:]}

        async def work(connection: AsyncConnection) -> bool:
            num_frames = await queries.count_frames(
                connection, segment.run_id, segment.rank, stretch
            )
            if num_frames != found.num_hot:
                return False
            if not await queries.set_rolled(connection, segment, found=first_step, rolled_to=end):
                return False
            await queries.put_tiles(connection, segment, tiles)
            for level, end_of_tile in ends.items():
                if end_of_tile <= end:
                    await _roll_up(connection, segment, level, end_of_tile - TILE_STEPS[level])
            return True

        return end if await self._database.write(work, of=segment.run_id) else None


def _end_of_tile(level: int, step: int) -> int:
    """Of the tile that a step lies in."""
    return step - step % TILE_STEPS[level] + TILE_STEPS[level]


async def _roll_up(
    connection: AsyncConnection, segment: SegmentRow, level: int, first_step: int
) -> None:
    """Makes the tiles of a level from those of the next finer one."""
    fine = LEVELS[LEVELS.index(level) - 1]
    found = await queries.tiles_of(
        connection,
        segment,
        level=fine,
        first_step=first_step,
        before=first_step + TILE_STEPS[level],
    )
    tiles = _coarser(found, level, first_step)
    await queries.put_tiles(connection, segment, tiles)


def _coarser(found: list[TileRow], level: int, first_step: int) -> list[TileRow]:
    def key(tile: TileRow) -> tuple[str, str, int]:
        return (tile.layout_hash, tile.name, tile.layer_tile)

    tiles: list[TileRow] = []
    for (layout_hash, name, layer_tile), group in groupby(sorted(found, key=key), key):
        pieces = [
            decode_tile(
                tile.data,
                first_step=tile.first_step,
                level=tile.level,
                is_metric=not layout_hash,
            )
            for tile in group
        ]
        buckets = regroup(pieces, level, pieces[0].low.shape[1])
        tiles.append(_tile(buckets, layout_hash, name, layer_tile, level, first_step))
    return tiles


def _unit_tiles(
    frames: list[Frame], layouts: Mapping[str, Layout], first_step: int
) -> list[TileRow]:
    """The tiles of one unit. Goes by the bucket: the widest layouts would fill the memory."""
    level = LEVELS[0]
    rows: dict[str, list[Buckets]] = {layout_hash: [] for layout_hash in layouts}
    for start in range(first_step, first_step + _UNIT, level):
        near = [f for f in frames if f.first_step < start + level and f.last_step >= start]
        for layout_hash, values in lay_out(near, start, level).stats.items():
            rows[layout_hash].append(summarise(start, values))
    tiles = _metric_tiles(frames, first_step)
    for layout_hash, layout in layouts.items():
        buckets = regroup(rows[layout_hash], level, layout.num_columns)
        tiles.extend(_stat_tiles(buckets, layout, layout_hash, first_step))
    return tiles


def _stat_tiles(
    buckets: Buckets, layout: Layout, layout_hash: str, first_step: int
) -> list[TileRow]:
    num_layers = len(layout.layers)
    return [
        _tile(
            buckets.columns(
                slice(
                    stat * num_layers + start,
                    stat * num_layers + min(start + TILE_LAYERS, num_layers),
                )
            ),
            layout_hash,
            name,
            start // TILE_LAYERS,
            LEVELS[0],
            first_step,
        )
        for stat, name in enumerate(layout.stats)
        for start in range(0, num_layers, TILE_LAYERS)
    ]


def _metric_tiles(frames: list[Frame], first_step: int) -> list[TileRow]:
    steps = first_step + np.arange(_UNIT, dtype=np.int64)
    tiles: list[TileRow] = []
    for name, values in lay_out(_without_stats(frames), first_step, _UNIT).metrics.items():
        column: NDArray[np.float64] = values[:, np.newaxis]
        buckets = regroup([from_values(steps, column)], LEVELS[0], 1)
        tiles.append(_tile(buckets, "", name, 0, LEVELS[0], first_step))
        raw = TileRow(
            layout_hash="",
            name=name,
            layer_tile=0,
            level=1,
            first_step=first_step,
            data=encode_values(values),
        )
        tiles.append(raw)
    return tiles


def _without_stats(frames: list[Frame]) -> list[Frame]:
    return [
        Frame(
            attempt=frame.attempt,
            rank=frame.rank,
            seq=frame.seq,
            segment=frame.segment,
            first_step=frame.first_step,
            times=frame.times,
            metric_names=frame.metric_names,
            metrics=frame.metrics,
        )
        for frame in frames
    ]


def _tile(
    buckets: Buckets, layout_hash: str, name: str, layer_tile: int, level: int, first_step: int
) -> TileRow:
    data = encode_tile(buckets, first_step=first_step, level=level, is_metric=not layout_hash)
    return TileRow(
        layout_hash=layout_hash,
        name=name,
        layer_tile=layer_tile,
        level=level,
        first_step=first_step,
        data=data,
    )
