"""Aggregates steps: makes the tiles of a stretch of 1024 steps, and the coarser ones above them."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import is_absent
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
_MATRIX_BYTES: Final = 32 * 2**20
"""Of the layers' values that are laid out at a time, unless those of 64 steps take more."""


class Near(Protocol):
    """The frames of a layout that hold any of these steps, in order of their sequence numbers;
    without a layout those of all, at least with their metrics. May give others, too."""

    def __call__(
        self, first_step: int, end: int, layout_hash: str | None = None, /
    ) -> Iterable[Frame]: ...


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


def unit_tiles(near: Near, layouts: Mapping[str, Layout], first_step: int) -> list[TileRow]:
    """The tiles of one unit."""
    metrics = metric_values(near(first_step, first_step + UNIT), first_step)
    return [
        *(
            tile
            for name, values in metrics.items()
            for tile in tiles_of_metric(name, values, first_step)
        ),
        *stat_tiles(near, layouts, first_step),
    ]


def stat_tiles(near: Near, layouts: Mapping[str, Layout], first_step: int) -> list[TileRow]:
    """The tiles of the layers. Works layout by layout, and some buckets at a time, since the widest
    layouts would need too much memory."""
    return [
        tile
        for layout_hash, layout in layouts.items()
        if (rows := _buckets_of(near, layout_hash, layout.num_columns, first_step))
        for tile in _tiles_of_layout(
            regroup(rows, LEVELS[0], layout.num_columns), layout, layout_hash, first_step
        )
    ]


def _buckets_of(near: Near, layout_hash: str, num_columns: int, first_step: int) -> list[Buckets]:
    level, end = LEVELS[0], first_step + UNIT
    at_a_time = max(_MATRIX_BYTES // (4 * max(num_columns, 1) * level), 1) * level
    rows: list[Buckets] = []
    for start in range(first_step, end, at_a_time):
        num_steps = min(at_a_time, end - start)
        frames = near(start, start + num_steps, layout_hash)
        values = lay_out(frames, start, num_steps).stats.get(layout_hash)
        if values is not None:
            rows += _summarised(start, values)
    return rows


def _summarised(first_step: int, values: NDArray[np.float32]) -> list[Buckets]:
    """Values (N, C) of consecutive steps by buckets, without those of which nothing is held."""
    level = LEVELS[0]
    parts = ((start, values[start : start + level]) for start in range(0, len(values), level))
    return [
        summarise(first_step + start, part) for start, part in parts if not is_absent(part).all()
    ]


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


def metric_values(frames: Iterable[Frame], first_step: int) -> dict[str, NDArray[np.float64]]:
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


def _without_stats(frames: Iterable[Frame]) -> Iterable[Frame]:
    return (
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
    )


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
