"""Aggregates steps: makes the tiles of a stretch of 1024 steps, and the coarser ones above them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch_server.telemetry import tile_queries
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
from runwatch_server.telemetry.dense import lay_out
from runwatch_server.telemetry.metric_tiles import encode_values
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.tile_queries import TileRow

UNIT: Final = TILE_STEPS[LEVELS[0]]
"""Number of steps that are aggregated at a time."""


async def roll_up_above(
    connection: AsyncConnection, segment: SegmentRow, first_step: int, rolled_to: int
) -> None:
    """Make the coarser tiles that contain a unit, if all of their steps have been aggregated."""
    for level in LEVELS[1:]:
        end = _end_of_tile(level, first_step)
        if end <= rolled_to:
            await _roll_up(connection, segment, level, end - TILE_STEPS[level])


def _end_of_tile(level: int, step: int) -> int:
    """The end of the tile that contains a step."""
    return step - step % TILE_STEPS[level] + TILE_STEPS[level]


async def _roll_up(
    connection: AsyncConnection, segment: SegmentRow, level: int, first_step: int
) -> None:
    """Make the tiles of a level from those of the next finer one."""
    fine = LEVELS[LEVELS.index(level) - 1]
    found = await tile_queries.tiles_of(
        connection,
        segment,
        level=fine,
        first_step=first_step,
        before=first_step + TILE_STEPS[level],
    )
    tiles = _coarser(found, level, first_step)
    await tile_queries.put_tiles(connection, segment, tiles)


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


def unit_tiles(
    frames: Sequence[Frame], layouts: Mapping[str, Layout], first_step: int
) -> list[TileRow]:
    """The tiles of one unit."""
    metrics = metric_values(frames, first_step)
    return [
        *(
            tile
            for name, values in metrics.items()
            for tile in tiles_of_metric(name, values, first_step)
        ),
        *stat_tiles(frames, layouts, first_step),
    ]


def stat_tiles(
    frames: Sequence[Frame], layouts: Mapping[str, Layout], first_step: int
) -> list[TileRow]:
    """The tiles of the layers. Works bucket by bucket, since the widest layouts would need too much
    memory."""
    level = LEVELS[0]
    rows: dict[str, list[Buckets]] = {layout_hash: [] for layout_hash in layouts}
    for start in range(first_step, first_step + UNIT, level):
        near = [f for f in frames if f.first_step < start + level and f.last_step >= start]
        for layout_hash, values in lay_out(near, start, level).stats.items():
            rows[layout_hash].append(summarise(start, values))
    tiles: list[TileRow] = []
    for layout_hash, layout in layouts.items():
        buckets = regroup(rows[layout_hash], level, layout.num_columns)
        tiles.extend(_tiles_of_layout(buckets, layout, layout_hash, first_step))
    return tiles


def _tiles_of_layout(
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


def metric_values(frames: Sequence[Frame], first_step: int) -> dict[str, NDArray[np.float64]]:
    """The values that frames hold of a unit's metrics: (UNIT,) each."""
    return lay_out(_without_stats(frames), first_step, UNIT).metrics


def tiles_of_metric(name: str, values: NDArray[np.float64], first_step: int) -> list[TileRow]:
    """The tiles of a metric's (UNIT,) values: aggregated, and as they are."""
    steps = first_step + np.arange(UNIT, dtype=np.int64)
    column: NDArray[np.float64] = values[:, np.newaxis]
    buckets = regroup([from_values(steps, column)], LEVELS[0], 1)
    raw = TileRow(
        layout_hash="",
        name=name,
        layer_tile=0,
        level=1,
        first_step=first_step,
        data=encode_values(values),
    )
    return [_tile(buckets, "", name, 0, LEVELS[0], first_step), raw]


def _without_stats(frames: Sequence[Frame]) -> list[Frame]:
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
