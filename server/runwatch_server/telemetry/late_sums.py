"""Adds steps that arrive after the frames beside them were removed by retention.

The removed steps cannot be aggregated again together with them. So the late ones are added to the
existing rollups, in the write that stores their frame: once, like the frame itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import is_absent
from runwatch.vocabulary import RunId
from runwatch_server.telemetry import segment_queries, tile_queries
from runwatch_server.telemetry.buckets import LEVELS, decode_tile, encode_tile, regroup
from runwatch_server.telemetry.metric_tiles import decode_values
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.summing import (
    UNIT,
    metric_values,
    roll_up_above,
    stat_tiles,
    tiles_of_metric,
)
from runwatch_server.telemetry.tile_queries import TileRow

_Key = tuple[str, str, int, int]


async def add_late_steps(
    connection: AsyncConnection, run_id: RunId, frame: Frame, layout: Layout | None
) -> None:
    """Add a frame that has just been stored to rollups, as far as the frames beside it were
    removed."""
    segment = await segment_queries.find_segment(
        connection, run_id, frame.attempt, frame.rank, frame.segment
    )
    if segment is None or not frame.num_steps:
        return
    end = min(frame.last_step + 1, segment.raw_from)
    layouts = {} if layout is None else {layout.hash: layout}
    for first_step in range(frame.first_step // UNIT * UNIT, end, UNIT):
        held = await _tiles_of_unit(connection, segment, first_step)
        await tile_queries.put_tiles(connection, segment, _added(held, frame, layouts, first_step))
        await roll_up_above(connection, segment, first_step, segment.rolled_to)


async def _tiles_of_unit(
    connection: AsyncConnection, segment: SegmentRow, first_step: int
) -> list[TileRow]:
    return [
        tile
        for level in (1, LEVELS[0])
        for tile in await tile_queries.tiles_of(
            connection, segment, level=level, first_step=first_step, before=first_step + UNIT
        )
    ]


def _added(
    held: Sequence[TileRow], frame: Frame, layouts: Mapping[str, Layout], first_step: int
) -> list[TileRow]:
    """All tiles of a unit, with the values that a frame holds of its steps."""
    tiles = _by_key(held)
    for name, values in metric_values([frame], first_step).items():
        before = tiles.get(("", name, 0, 1))
        joined = values if before is None else _laid_over(decode_values(before.data), values)
        tiles |= _by_key(tiles_of_metric(name, joined, first_step))

    def near(_first_step: int, _end: int, _layout_hash: str | None = None, /) -> list[Frame]:
        return [frame]

    for key, tile in _by_key(stat_tiles(near, layouts, first_step)).items():
        before = tiles.get(key)
        tiles[key] = tile if before is None else _joined(before, tile)
    return list(tiles.values())


def _by_key(tiles: Iterable[TileRow]) -> dict[_Key, TileRow]:
    return {(tile.layout_hash, tile.name, tile.layer_tile, tile.level): tile for tile in tiles}


def _laid_over(held: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(UNIT,) values: later ones replace earlier ones where they are recorded."""
    joined = held.copy()
    np.copyto(joined, values, where=~is_absent(values))
    return joined


def _joined(held: TileRow, added: TileRow) -> TileRow:
    """A tile of layers with the steps of another one added: no step of a segment is in two
    frames."""
    place = {"first_step": held.first_step, "level": held.level}
    pieces = [decode_tile(tile.data, is_metric=False, **place) for tile in (held, added)]
    buckets = regroup(pieces, held.level, pieces[0].low.shape[1])
    return replace(held, data=encode_tile(buckets, is_metric=False, **place))
