"""The writes for one frame, with statements that are built once, because this path must be fast.

SQLAlchemy takes longer to build a statement than SQLite to run it. To PostgreSQL each statement is
a round trip, so there a frame that comes in order is stored, with its marks, by a single statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.frame_rows import FrameRow, StreamState
from runwatch_server.telemetry.queries import list_metrics
from runwatch_server.telemetry.tables import frames, metrics, segments, streams


@dataclass(frozen=True, slots=True)
class _Marks:
    """How far a stream is stored."""

    next_seq: int
    max_seq: int


_IS_FRAME: Final = (
    frames.c.run_id == bindparam("of_run"),
    frames.c.attempt == bindparam("of_attempt"),
    frames.c.rank == bindparam("of_rank"),
)
_FIND_STATE: Final = (
    sa.select(
        runs.c.state,
        runs.c.project,
        runs.c.current_attempt,
        streams.c.next_seq,
        streams.c.max_seq,
    )
    .select_from(
        runs.outerjoin(
            streams,
            sa.and_(
                streams.c.run_id == runs.c.id,
                streams.c.attempt == bindparam("of_attempt"),
                streams.c.rank == bindparam("of_rank"),
            ),
        )
    )
    .where(runs.c.id == bindparam("of_run"))
)
_FIND_CHECKSUM: Final = sa.select(frames.c.checksum).where(
    *_IS_FRAME, frames.c.seq == bindparam("of_seq")
)
_FOLLOWING: Final = (
    sa.select(frames.c.seq)
    .where(*_IS_FRAME, frames.c.seq >= bindparam("of_seq"))
    .order_by(frames.c.seq)
)
_INSERT_FRAME: Final = frames.insert()
_INSERT_STREAM: Final = streams.insert()
_ADVANCE_STREAM: Final = (
    streams.update()
    .where(
        streams.c.run_id == bindparam("of_run"),
        streams.c.attempt == bindparam("of_attempt"),
        streams.c.rank == bindparam("of_rank"),
    )
    .values(next_seq=bindparam("to_next"), max_seq=bindparam("to_max"))
)
_FIRST: Final = bindparam("first", type_=sa.BigInteger())
_LAST: Final = bindparam("last", type_=sa.BigInteger())
_ALIGNED: Final = bindparam("aligned", type_=sa.BigInteger())
_INSERT_SEGMENT: Final = segments.insert()
_EXTEND_SEGMENT: Final = (
    segments.update()
    .where(
        segments.c.run_id == bindparam("of_run"),
        segments.c.attempt == bindparam("of_attempt"),
        segments.c.rank == bindparam("of_rank"),
        segments.c.segment == bindparam("of_segment"),
    )
    .values(
        first_step=sa.case(
            (segments.c.first_step < _FIRST, segments.c.first_step),
            else_=_FIRST,
        ),
        last_step=sa.case(
            (segments.c.last_step > _LAST, segments.c.last_step),
            else_=_LAST,
        ),
        # Late steps are aggregated again, unless the frames beside them have been removed.
        rolled_to=sa.case(
            (segments.c.rolled_to <= _ALIGNED, segments.c.rolled_to),
            (segments.c.raw_from >= _ALIGNED, segments.c.raw_from),
            else_=_ALIGNED,
        ),
    )
)
_FURTHER: Final = (
    sa.select(segments.c.segment)
    .where(
        segments.c.run_id == bindparam("of_run"),
        segments.c.attempt == bindparam("of_attempt"),
        segments.c.rank == bindparam("of_rank"),
        sa.or_(
            segments.c.segment > bindparam("of_segment"),
            sa.and_(segments.c.segment == bindparam("of_segment"), segments.c.last_step > _LAST),
        ),
    )
    .exists()
)
"""For a frame that is out of order or was sent afterwards: the stream is already further."""
_SET_LAST_STEP: Final = (
    runs.update().where(runs.c.id == bindparam("of_run"), sa.not_(_FURTHER)).values(last_step=_LAST)
)
_STORE_FRAME: Final = _EXTEND_SEGMENT.add_cte(
    _INSERT_FRAME.values(
        {column.name: bindparam(f"frame_{column.name}", type_=column.type) for column in frames.c}
    ).cte("frame"),
    _ADVANCE_STREAM.cte("stream"),
    _SET_LAST_STEP.where(bindparam("moves_run", type_=sa.Boolean())).cte("run"),
)
"""Everything in one statement, if stream and segment have begun; for PostgreSQL."""


async def stream_state(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> StreamState | None:
    """None if there is no such run."""
    found = await connection.execute(_FIND_STATE, _stream_key(run_id, attempt, rank))
    row = found.one_or_none()
    if row is None:
        return None
    return StreamState(
        run_state=RunState(row.state),
        project=row.project,
        current_attempt=row.current_attempt,
        next_seq=row.next_seq or 1,
        max_seq=row.max_seq or 0,
        is_new=row.next_seq is None,
    )


async def find_checksum(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
) -> int | None:
    """The checksum of a stored frame."""
    key = _stream_key(run_id, attempt, rank) | {"of_seq": seq}
    found: int | None = await connection.scalar(_FIND_CHECKSUM, key)
    return found


async def store_frame(
    connection: AsyncConnection,
    frame: FrameRow,
    body: bytes,
    *,
    before: StreamState,
    moves_run: bool,
) -> int:
    """Store a frame and update the marks; returns the lowest sequence number that is not stored.

    `moves_run`: the frame's last step becomes the run's newest step, which after a rollback is an
    earlier one, unless the stream was further already.
    """
    marks = await _marks_after(connection, frame, before)
    if connection.dialect.name == "postgresql" and frame.num_steps and not before.is_new:
        steps = _segment_steps(frame)
        values = {f"frame_{name}": value for name, value in _values(frame, body).items()}
        extended = await connection.execute(
            _STORE_FRAME, _key(frame) | values | _advance(marks) | steps | {"moves_run": moves_run}
        )
        if extended.rowcount == 0:
            await _begin_segment(connection, frame)
        return marks.next_seq
    await connection.execute(_INSERT_FRAME, _values(frame, body))
    if before.is_new:
        key = {"run_id": frame.run_id, "attempt": frame.attempt, "rank": frame.rank}
        seqs = {"next_seq": marks.next_seq, "max_seq": marks.max_seq}
        await connection.execute(_INSERT_STREAM, key | seqs)
    else:
        await connection.execute(_ADVANCE_STREAM, _key(frame) | _advance(marks))
    if frame.num_steps:
        await _extend_segment(connection, frame)
        if moves_run:
            await connection.execute(
                _SET_LAST_STEP, _key(frame) | {"of_segment": frame.segment, "last": frame.last_step}
            )
    return marks.next_seq


async def add_metrics(connection: AsyncConnection, run_id: RunId, names: Sequence[str]) -> None:
    """Store names of metrics that a run has sent."""
    known = set(await list_metrics(connection, run_id))
    rows = [{"run_id": run_id, "name": name} for name in names if name not in known]
    if rows:
        await connection.execute(metrics.insert(), rows)


async def _marks_after(connection: AsyncConnection, frame: FrameRow, before: StreamState) -> _Marks:
    next_seq = before.next_seq
    if frame.seq == next_seq:
        next_seq += 1
        if before.max_seq > frame.seq:
            next_seq = await _next_missing(connection, frame, next_seq)
    return _Marks(next_seq, max(frame.seq, before.max_seq))


async def _extend_segment(connection: AsyncConnection, frame: FrameRow) -> None:
    """Update which steps a segment holds."""
    updated = await connection.execute(_EXTEND_SEGMENT, _key(frame) | _segment_steps(frame))
    if updated.rowcount == 0:
        await _begin_segment(connection, frame)


async def _begin_segment(connection: AsyncConnection, frame: FrameRow) -> None:
    row = {
        "run_id": frame.run_id,
        "attempt": frame.attempt,
        "rank": frame.rank,
        "segment": frame.segment,
        "first_step": frame.first_step,
        "last_step": frame.last_step,
        "rolled_to": frame.aligned_step,
        "raw_from": 0,
    }
    await connection.execute(_INSERT_SEGMENT, row)


async def _next_missing(connection: AsyncConnection, frame: FrameRow, seq: int) -> int:
    key = _key(frame) | {"of_seq": seq}
    for held in await connection.scalars(_FOLLOWING, key):
        if held != seq:
            break
        seq += 1
    return seq


def _values(frame: FrameRow, body: bytes) -> dict[str, object]:
    return {
        "run_id": frame.run_id,
        "attempt": frame.attempt,
        "rank": frame.rank,
        "seq": frame.seq,
        "segment": frame.segment,
        "first_step": frame.first_step,
        "num_steps": frame.num_steps,
        "layout_hash": frame.layout_hash,
        "checksum": frame.checksum,
        "late": frame.late,
        "received_at": frame.received_at,
        "body": body,
    }


def _advance(marks: _Marks) -> dict[str, object]:
    return {"to_next": marks.next_seq, "to_max": marks.max_seq}


def _segment_steps(frame: FrameRow) -> dict[str, object]:
    return {
        "of_segment": frame.segment,
        "first": frame.first_step,
        "last": frame.last_step,
        "aligned": frame.aligned_step,
    }


def _key(frame: FrameRow) -> dict[str, object]:
    return _stream_key(frame.run_id, frame.attempt, frame.rank)


def _stream_key(run_id: RunId, attempt: int, rank: int) -> dict[str, object]:
    return {"of_run": run_id, "of_attempt": attempt, "of_rank": rank}
