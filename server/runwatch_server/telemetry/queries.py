"""Every question that is put to stored frames, segments, rollups and metric names."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import MAX_STEPS
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.tables import frames, metrics, rollups, segments


@dataclass(frozen=True, slots=True, kw_only=True)
class HotFrame:
    """A frame as it was received, and what its row says of it."""

    seq: int
    segment: int
    first_step: int
    num_steps: int
    layout_hash: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    run_id: RunId
    attempt: int
    rank: int
    segment: int
    first_step: int
    last_step: int
    rolled_to: int
    """Steps below it are in rollups."""
    raw_from: int
    """Frames below it were removed; their rollups stay."""

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.attempt, self.segment, self.first_step, self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileRow:
    layout_hash: str
    name: str
    layer_tile: int
    level: int
    first_step: int
    data: bytes


async def list_metrics(connection: AsyncConnection, run_id: RunId) -> list[str]:
    query = sa.select(metrics.c.name).where(metrics.c.run_id == run_id).order_by(metrics.c.name)
    return list(await connection.scalars(query))


async def list_segments(connection: AsyncConnection, run_id: RunId, rank: int) -> list[SegmentRow]:
    query = (
        sa.select(segments)
        .where(segments.c.run_id == run_id, segments.c.rank == rank)
        .order_by(segments.c.attempt, segments.c.segment)
    )
    return [_segment(row) for row in await connection.execute(query)]


async def find_segment(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, segment: int
) -> SegmentRow | None:
    query = sa.select(segments).where(*_is_segment(run_id, attempt, rank, segment))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _segment(row)


async def list_segments_of_ranks(
    connection: AsyncConnection, run_id: RunId
) -> dict[int, list[SegmentRow]]:
    """The segments of each rank that has sent steps, by its number."""
    query = (
        sa.select(segments)
        .where(segments.c.run_id == run_id)
        .order_by(segments.c.rank, segments.c.attempt, segments.c.segment)
    )
    found: dict[int, list[SegmentRow]] = {}
    for row in await connection.execute(query):
        found.setdefault(row.rank, []).append(_segment(row))
    return found


async def list_unrolled(
    connection: AsyncConnection, num_steps: int, limit: int
) -> list[SegmentRow]:
    """Segments that hold so many steps beyond their rollups."""
    query = (
        sa.select(segments)
        .where(segments.c.last_step - segments.c.rolled_to >= num_steps)
        .limit(limit)
    )
    return [_segment(row) for row in await connection.execute(query)]


async def set_rolled(
    connection: AsyncConnection, segment: SegmentRow, *, found: int, rolled_to: int
) -> bool:
    """Moves the mark, unless something came late in the meantime."""
    updated = await connection.execute(
        segments.update()
        .where(
            *_is_segment(segment.run_id, segment.attempt, segment.rank, segment.segment),
            segments.c.rolled_to == found,
        )
        .values(rolled_to=rolled_to)
    )
    return updated.rowcount == 1


async def frames_of_steps(
    connection: AsyncConnection,
    run_id: RunId,
    rank: int,
    stretch: Stretch,
) -> list[HotFrame]:
    """The frames that hold any of these steps, in order of their sequence numbers; but for those
    in packs."""
    query = (
        sa.select(
            frames.c.seq,
            frames.c.segment,
            frames.c.first_step,
            frames.c.num_steps,
            frames.c.layout_hash,
            frames.c.body,
        )
        .where(*_holds(run_id, rank, stretch))
        .order_by(frames.c.seq)
    )
    return [HotFrame(**row) for row in (await connection.execute(query)).mappings()]


async def newest_frame(connection: AsyncConnection, run_id: RunId, attempt: int) -> bytes | None:
    """The body of rank 0's newest frame that holds steps."""
    query = (
        sa.select(frames.c.body)
        .where(*_is_stream(run_id, attempt, 0), frames.c.num_steps > 0)
        .order_by(frames.c.seq.desc())
        .limit(1)
    )
    body: bytes | None = await connection.scalar(query)
    return body


async def newest_arrival(connection: AsyncConnection, run_id: RunId, attempt: int) -> float | None:
    """When rank 0's newest steps came; None where none are kept."""
    query = (
        sa.select(frames.c.received_at)
        .where(*_is_stream(run_id, attempt, 0), frames.c.num_steps > 0)
        .order_by(frames.c.seq.desc())
        .limit(1)
    )
    at: float | None = await connection.scalar(query)
    return at


async def last_steps_of_ranks(
    connection: AsyncConnection, run_id: RunId, attempt: int
) -> dict[int, int]:
    """The ranks that an attempt has heard from, and the last step of each."""
    query = (
        sa.select(segments.c.rank, segments.c.last_step)
        .where(segments.c.run_id == run_id, segments.c.attempt == attempt)
        .order_by(segments.c.rank, segments.c.segment)
    )
    return {row.rank: row.last_step for row in await connection.execute(query)}


async def count_frames(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> int:
    query = sa.select(sa.func.count()).where(*_holds(run_id, rank, stretch))
    return await connection.scalar(query) or 0


async def first_hot_step(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> int | None:
    """Where the first frame begins that holds any of these steps; but for those in packs."""
    query = sa.select(sa.func.min(frames.c.first_step)).where(*_holds(run_id, rank, stretch))
    step: int | None = await connection.scalar(query)
    return step


async def put_tiles(
    connection: AsyncConnection, segment: SegmentRow, tiles: Sequence[TileRow]
) -> None:
    """Stores tiles in place of those that cover the same steps."""
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


def _is_stream(run_id: RunId, attempt: int, rank: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (frames.c.run_id == run_id, frames.c.attempt == attempt, frames.c.rank == rank)


def _is_segment(
    run_id: RunId, attempt: int, rank: int, segment: int
) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        segments.c.run_id == run_id,
        segments.c.attempt == attempt,
        segments.c.rank == rank,
        segments.c.segment == segment,
    )


def _is_rollup(segment: SegmentRow) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        rollups.c.run_id == segment.run_id,
        rollups.c.attempt == segment.attempt,
        rollups.c.rank == segment.rank,
        rollups.c.segment == segment.segment,
    )


def _holds(run_id: RunId, rank: int, stretch: Stretch) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        *_is_stream(run_id, stretch.attempt, rank),
        frames.c.segment == stretch.segment,
        frames.c.first_step > stretch.first_step - MAX_STEPS,  # none is longer
        frames.c.first_step <= stretch.last_step,
        frames.c.first_step + frames.c.num_steps > stretch.first_step,
    )


def _segment(row: sa.Row[tuple[object, ...]]) -> SegmentRow:
    return SegmentRow(
        run_id=row.run_id,
        attempt=row.attempt,
        rank=row.rank,
        segment=row.segment,
        first_step=row.first_step,
        last_step=row.last_step,
        rolled_to=row.rolled_to,
        raw_from=row.raw_from,
    )
