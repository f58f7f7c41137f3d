"""Queries of segments: which steps each holds, and how far they have been aggregated."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.tables import segments


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
    connection: AsyncConnection, num_steps: int, *, after: SegmentRow | None, limit: int
) -> list[tuple[SegmentRow, bool]]:
    """Segments that hold this many steps beyond their rollups, or any if their run has ended, in
    the order of their keys, each with whether its run has ended."""
    key = tuple(segments.primary_key.columns)
    has_ended = sa.exists().where(runs.c.id == segments.c.run_id, runs.c.ended_at.is_not(None))
    query = (
        sa.select(segments, has_ended.label("has_ended"))
        .where(
            sa.or_(
                segments.c.last_step - segments.c.rolled_to >= num_steps,
                sa.and_(segments.c.last_step >= segments.c.rolled_to, has_ended),
            )
        )
        .order_by(*key)
        .limit(limit)
    )
    if after is not None:
        last = (after.run_id, after.attempt, after.rank, after.segment)
        query = query.where(sa.tuple_(*key) > last)
    return [(_segment(row), bool(row.has_ended)) for row in await connection.execute(query)]


async def set_rolled(
    connection: AsyncConnection, segment: SegmentRow, *, found: int, rolled_to: int
) -> bool:
    """Advance the mark, unless steps came late in the meantime; returns whether it did."""
    updated = await connection.execute(
        segments.update()
        .where(
            *_is_segment(segment.run_id, segment.attempt, segment.rank, segment.segment),
            segments.c.rolled_to == found,
        )
        .values(rolled_to=rolled_to)
    )
    return updated.rowcount == 1


async def last_steps_of_ranks(
    connection: AsyncConnection, run_id: RunId, attempt: int
) -> dict[int, int]:
    """The ranks of an attempt that have sent steps, and the last step of each."""
    query = (
        sa.select(segments.c.rank, segments.c.last_step)
        .where(segments.c.run_id == run_id, segments.c.attempt == attempt)
        .order_by(segments.c.rank, segments.c.segment)
    )
    return {row.rank: row.last_step for row in await connection.execute(query)}


def _is_segment(
    run_id: RunId, attempt: int, rank: int, segment: int
) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        segments.c.run_id == run_id,
        segments.c.attempt == attempt,
        segments.c.rank == rank,
        segments.c.segment == segment,
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
