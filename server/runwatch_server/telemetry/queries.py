"""Every question put to the tables of frames, streams, segments, rollups and metric names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import MAX_STEPS
from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.buckets import TILE_STEPS
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.tables import frames, metrics, rollups, segments, streams

ROLLUP_ALIGNMENT: Final = TILE_STEPS[64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A run and one of its streams, as the next frame finds them."""

    run_state: RunState
    current_attempt: int
    next_seq: int
    max_seq: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRow:
    """A frame's row but its body."""

    run_id: RunId
    attempt: int
    rank: int
    seq: int
    segment: int
    first_step: int
    num_steps: int
    layout_hash: str
    checksum: int
    late: bool
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFrame:
    """A frame as it was received."""

    seq: int
    body: bytes
    late: bool
    received_at: float


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


async def stream_state(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> StreamState | None:
    """None where there is no such run."""
    query = (
        sa.select(runs.c.state, runs.c.current_attempt, streams.c.next_seq, streams.c.max_seq)
        .select_from(
            runs.outerjoin(
                streams,
                sa.and_(
                    streams.c.run_id == runs.c.id,
                    streams.c.attempt == attempt,
                    streams.c.rank == rank,
                ),
            )
        )
        .where(runs.c.id == run_id)
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    return StreamState(
        run_state=RunState(row.state),
        current_attempt=row.current_attempt,
        next_seq=row.next_seq or 1,
        max_seq=row.max_seq or 0,
        is_new=row.next_seq is None,
    )


async def find_checksum(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
) -> int | None:
    """The checksum of a frame that is held."""
    return await connection.scalar(
        sa.select(frames.c.checksum).where(*_is_stream(run_id, attempt, rank), frames.c.seq == seq)
    )


async def insert_frame(connection: AsyncConnection, frame: FrameRow, body: bytes) -> None:
    await connection.execute(
        frames.insert().values(
            run_id=frame.run_id,
            attempt=frame.attempt,
            rank=frame.rank,
            seq=frame.seq,
            segment=frame.segment,
            first_step=frame.first_step,
            num_steps=frame.num_steps,
            layout_hash=frame.layout_hash,
            checksum=frame.checksum,
            late=frame.late,
            received_at=frame.received_at,
            body=body,
        )
    )


async def advance_stream(
    connection: AsyncConnection,
    run_id: RunId,
    attempt: int,
    rank: int,
    seq: int,
    *,
    before: StreamState,
) -> int:
    """Notes that a frame is held now; returns the lowest sequence number that is not."""
    next_seq = before.next_seq
    if seq == next_seq:
        next_seq += 1
        if before.max_seq > seq:
            next_seq = await _next_missing(connection, run_id, attempt, rank, next_seq)
    values = {"next_seq": next_seq, "max_seq": max(seq, before.max_seq)}
    if before.is_new:
        key = {"run_id": run_id, "attempt": attempt, "rank": rank}
        await connection.execute(streams.insert().values(**key, **values))
    else:
        await connection.execute(
            streams.update()
            .where(streams.c.run_id == run_id, streams.c.attempt == attempt, streams.c.rank == rank)
            .values(**values)
        )
    return next_seq


async def extend_segment(connection: AsyncConnection, frame: FrameRow) -> None:
    """Notes which steps a segment holds; steps that came late are summed up again."""
    last_step = frame.first_step + frame.num_steps - 1
    aligned = frame.first_step - frame.first_step % ROLLUP_ALIGNMENT
    updated = await connection.execute(
        segments.update()
        .where(*_is_segment(frame.run_id, frame.attempt, frame.rank, frame.segment))
        .values(
            first_step=_least(segments.c.first_step, frame.first_step),
            last_step=-_least(-segments.c.last_step, -last_step),
            rolled_to=sa.case(
                (segments.c.rolled_to <= aligned, segments.c.rolled_to),
                (segments.c.raw_from >= aligned, segments.c.raw_from),
                else_=aligned,
            ),
        )
    )
    if updated.rowcount == 0:
        await connection.execute(
            segments.insert().values(
                run_id=frame.run_id,
                attempt=frame.attempt,
                rank=frame.rank,
                segment=frame.segment,
                first_step=frame.first_step,
                last_step=last_step,
                rolled_to=aligned,
                raw_from=0,
            )
        )


async def add_metrics(connection: AsyncConnection, run_id: RunId, names: Sequence[str]) -> None:
    """Notes names of metrics that a run has sent."""
    known = set(await list_metrics(connection, run_id))
    rows = [{"run_id": run_id, "name": name} for name in names if name not in known]
    if rows:
        await connection.execute(metrics.insert(), rows)


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
) -> list[bytes]:
    """Bodies of the frames that hold any of these steps, in order of their sequence numbers."""
    query = sa.select(frames.c.body).where(*_holds(run_id, rank, stretch)).order_by(frames.c.seq)
    return list(await connection.scalars(query))


async def count_frames(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> int:
    query = sa.select(sa.func.count()).where(*_holds(run_id, rank, stretch))
    return await connection.scalar(query) or 0


async def frames_from(
    connection: AsyncConnection,
    run_id: RunId,
    attempt: int,
    rank: int,
    *,
    first_seq: int,
    limit: int,
) -> list[StoredFrame]:
    """Frames of a stream from a sequence number on, in order: what an evaluator replays."""
    query = (
        sa.select(frames.c.seq, frames.c.body, frames.c.late, frames.c.received_at)
        .where(*_is_stream(run_id, attempt, rank), frames.c.seq >= first_seq)
        .order_by(frames.c.seq)
        .limit(limit)
    )
    return [
        StoredFrame(seq=row.seq, body=row.body, late=row.late, received_at=row.received_at)
        for row in await connection.execute(query)
    ]


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
    return [TileRow(**row._asdict()) for row in await connection.execute(query)]


async def _next_missing(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
) -> int:
    query = (
        sa.select(frames.c.seq)
        .where(*_is_stream(run_id, attempt, rank), frames.c.seq >= seq)
        .order_by(frames.c.seq)
    )
    for held in await connection.scalars(query):
        if held != seq:
            break
        seq += 1
    return seq


def _least(column: sa.ColumnElement[int], value: int) -> sa.ColumnElement[int]:
    return sa.case((column < value, column), else_=value)


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
    return SegmentRow(**row._asdict())
