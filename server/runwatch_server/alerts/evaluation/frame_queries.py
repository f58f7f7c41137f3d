"""Queries for the stored frames of streams, for those who judge them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.alerts.tables import evaluations, passed_over
from runwatch_server.runs.queries import IS_GOING_ON
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.queries import HOT_COLUMNS, HotFrame
from runwatch_server.telemetry.tables import frames, layouts, metrics, streams

# Built once: they run every few seconds, and building takes longer than running.
RUNS_GOING_ON: Final = sa.select(runs.c.id).where(IS_GOING_ON)
STREAMS_BEHIND: Final = (
    sa.select(streams.c.run_id, streams.c.attempt, streams.c.rank, streams.c.max_seq)
    .outerjoin_from(
        streams,
        evaluations,
        (evaluations.c.run_id == streams.c.run_id)
        & (evaluations.c.attempt == streams.c.attempt)
        & (evaluations.c.rank == streams.c.rank),
    )
    .where(streams.c.max_seq > sa.func.coalesce(evaluations.c.evaluated_seq, 0))
)
"""The streams that hold frames nobody has judged, each with its newest sequence number. Over all
runs it reads every stream that was ever sent: 0.2 s for 240,000."""
_BEHIND_OF_GOING_ON: Final = STREAMS_BEHIND.where(streams.c.run_id.in_(RUNS_GOING_ON))
_PASSED_OVER: Final = sa.select(
    passed_over.c.run_id, passed_over.c.attempt, passed_over.c.rank, passed_over.c.seq
)
_PASSED_OVER_OF_GOING_ON: Final = _PASSED_OVER.where(passed_over.c.run_id.in_(RUNS_GOING_ON))


class StreamBehind(NamedTuple):
    """A stream that holds frames nobody has judged."""

    run_id: RunId
    key: StreamKey
    newest_seq: int
    """0 if it is only behind with the one below."""
    passed_over: int | None = None
    """A frame that came after the watermark had passed it."""


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame of a stream that is not in a pack."""

    hot: HotFrame
    late: bool


@dataclass(frozen=True, slots=True)
class FrameSize:
    """What says how much memory a stored frame takes."""

    seq: int
    num_steps: int
    layout_hash: str
    body_bytes: int


async def list_sizes(
    connection: AsyncConnection,
    run_id: RunId,
    key: StreamKey,
    *,
    first_seq: int,
    last_seq: int,
    limit: int,
) -> list[FrameSize]:
    """The frames of a stream within bounds, in order, except those in packs, without bodies."""
    columns = (frames.c.seq, frames.c.num_steps, frames.c.layout_hash)
    wanted = _frames_of(run_id, key, first_seq, last_seq).limit(limit)
    found = await connection.execute(
        wanted.with_only_columns(*columns, sa.func.length(frames.c.body))
    )
    return [FrameSize(*row) for row in found]


async def find_frames(
    connection: AsyncConnection, run_id: RunId, key: StreamKey, *, first_seq: int, last_seq: int
) -> list[StoredFrame]:
    """The frames of a stream within bounds, in order, except those in packs."""
    found = await connection.execute(_frames_of(run_id, key, first_seq, last_seq))
    return [StoredFrame(HotFrame.of(row, row.body), row.late) for row in found]


def _frames_of(
    run_id: RunId, key: StreamKey, first_seq: int, last_seq: int
) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(*HOT_COLUMNS, frames.c.late)
        .where(
            frames.c.run_id == run_id,
            frames.c.attempt == key.attempt,
            frames.c.rank == key.rank,
            frames.c.seq.between(first_seq, last_seq),
        )
        .order_by(frames.c.seq)
    )


async def count_metrics(connection: AsyncConnection, run_id: RunId) -> int:
    """The number of metrics that a run's frames may have."""
    found = sa.select(sa.func.count()).where(metrics.c.run_id == run_id)
    return await connection.scalar(found) or 0


async def find_layout(connection: AsyncConnection, run_id: RunId, layout_hash: str) -> bytes:
    """A layout's document, compressed as it is stored."""
    found = await connection.execute(
        sa.select(layouts.c.document).where(
            layouts.c.run_id == run_id, layouts.c.hash == layout_hash
        )
    )
    document: bytes = found.scalar_one()
    return document


async def list_streams(connection: AsyncConnection, run_id: RunId) -> list[tuple[StreamKey, int]]:
    """The streams of a run, each with its newest sequence number."""
    found = await connection.execute(
        sa.select(streams.c.attempt, streams.c.rank, streams.c.max_seq)
        .where(streams.c.run_id == run_id)
        .order_by(streams.c.attempt, streams.c.rank)
    )
    return [(StreamKey(attempt, rank), max_seq) for attempt, rank, max_seq in found]


async def list_behind(
    connection: AsyncConnection, run_ids: Collection[RunId] | None = None
) -> list[StreamBehind]:
    """The streams of some runs, or of all, that hold unjudged frames."""
    if run_ids is None:
        behind = await _list_behind(connection, STREAMS_BEHIND)
        return [*behind, *await _list_passed_over(connection, _PASSED_OVER)]
    of_runs = STREAMS_BEHIND.where(streams.c.run_id.in_(run_ids))
    late = _PASSED_OVER.where(passed_over.c.run_id.in_(run_ids))
    return [
        *await _list_behind(connection, of_runs),
        *await _list_passed_over(connection, late),
    ]


async def list_behind_of_going_on(
    connection: AsyncConnection,
) -> list[StreamBehind]:
    """The same of the runs that have not ended."""
    return [
        *await _list_behind(connection, _BEHIND_OF_GOING_ON),
        *await _list_passed_over(connection, _PASSED_OVER_OF_GOING_ON),
    ]


async def _list_behind(
    connection: AsyncConnection, wanted: sa.Select[str, int, int, int]
) -> list[StreamBehind]:
    found = await connection.execute(wanted)
    return [
        StreamBehind(RunId(run_id), StreamKey(attempt, rank), max_seq)
        for run_id, attempt, rank, max_seq in found
    ]


async def _list_passed_over(
    connection: AsyncConnection, wanted: sa.Select[str, int, int, int]
) -> list[StreamBehind]:
    found = await connection.execute(wanted)
    return [
        StreamBehind(RunId(run_id), StreamKey(attempt, rank), 0, seq)
        for run_id, attempt, rank, seq in found
    ]


async def list_unjudged_arrivals(connection: AsyncConnection, run_id: RunId) -> list[float | None]:
    """The arrival times of the next frame to judge in each of a run's streams that has unjudged
    frames; None if that frame is still missing and later ones wait for it. For a frame in a pack it
    is the time of packing, as no pack keeps when each of its frames arrived."""
    of_run = STREAMS_BEHIND.where(streams.c.run_id == run_id)
    next_seq = sa.func.coalesce(evaluations.c.evaluated_seq, 0) + 1
    hot = _of_stream(frames) & (frames.c.seq == next_seq)
    packed = _of_stream(packs) & next_seq.between(packs.c.first_seq, packs.c.last_seq)
    arrived = sa.func.coalesce(frames.c.received_at, packs.c.packed_at)
    arrivals = of_run.with_only_columns(arrived).outerjoin(frames, hot).outerjoin(packs, packed)
    return list(await connection.scalars(arrivals))


def _of_stream(table: sa.Table) -> sa.ColumnElement[bool]:
    return (
        (table.c.run_id == streams.c.run_id)
        & (table.c.attempt == streams.c.attempt)
        & (table.c.rank == streams.c.rank)
    )
