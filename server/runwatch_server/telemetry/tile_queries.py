"""Queries of rollups: tiles of aggregated steps, level by level."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.tables import rollups


@dataclass(frozen=True, slots=True, kw_only=True)
class TileRow:
    layout_hash: str
    name: str
    layer_tile: int
    level: int
    first_step: int
    data: bytes


async def put_tiles(
    connection: AsyncConnection, segment: SegmentRow, tiles: Sequence[TileRow]
) -> None:
    """Store tiles, replacing those that cover the same steps."""
    for level, first_step in {(tile.level, tile.first_step) for tile in tiles}:
        await connection.execute(
            rollups.delete().where(
                *_is_rollup(segment), rollups.c.level == level, rollups.c.first_step == first_step
            )
        )
    key = {
        "run_id": segment.run_id,
        "attempt": segment.attempt,
        "rank": segment.rank,
        "segment": segment.segment,
    }
    rows = [
        key
        | {
            "layout_hash": tile.layout_hash,
            "name": tile.name,
            "layer_tile": tile.layer_tile,
            "level": tile.level,
            "first_step": tile.first_step,
            "data": tile.data,
        }
        for tile in tiles
    ]
    if rows:
        await connection.execute(rollups.insert(), rows)


async def tiles_of(
    connection: AsyncConnection,
    segment: SegmentRow,
    *,
    level: int,
    first_step: int,
    before: int,
    layout_hashes: Sequence[str] | None = None,
    name: str | None = None,
    layer_tile: int | None = None,
) -> list[TileRow]:
    """Tiles of a level that begin within [first_step, before)."""
    query = sa.select(
        rollups.c.layout_hash,
        rollups.c.name,
        rollups.c.layer_tile,
        rollups.c.level,
        rollups.c.first_step,
        rollups.c.data,
    ).where(
        *_is_rollup(segment),
        rollups.c.level == level,
        rollups.c.first_step >= first_step,
        rollups.c.first_step < before,
    )
    if layout_hashes is not None:
        query = query.where(rollups.c.layout_hash.in_(layout_hashes))
    if name is not None:
        query = query.where(rollups.c.name == name)
    if layer_tile is not None:
        query = query.where(rollups.c.layer_tile == layer_tile)
    return [
        TileRow(
            layout_hash=row.layout_hash,
            name=row.name,
            layer_tile=row.layer_tile,
            level=row.level,
            first_step=row.first_step,
            data=row.data,
        )
        for row in await connection.execute(query)
    ]


def _is_rollup(segment: SegmentRow) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        rollups.c.run_id == segment.run_id,
        rollups.c.attempt == segment.attempt,
        rollups.c.rank == segment.rank,
        rollups.c.segment == segment.segment,
    )
