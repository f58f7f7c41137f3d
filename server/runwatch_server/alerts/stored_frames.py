"""Frames read back from disk, for a stream that has fallen behind or is built again."""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import sqlalchemy as sa
import zstandard
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import decode_frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts.stream import StreamKey
from runwatch_server.alerts.tables import evaluations
from runwatch_server.telemetry.seams import CommittedFrame
from runwatch_server.telemetry.tables import frames, layouts, streams


async def read_frames(
    connection: AsyncConnection,
    run_id: RunId,
    key: StreamKey,
    *,
    first_seq: int,
    last_seq: int | None = None,
    limit: int,
) -> list[CommittedFrame]:
    """The stored frames of a stream from a sequence number on, in order."""
    wanted = (
        sa.select(frames.c.seq, frames.c.layout_hash, frames.c.late, frames.c.body)
        .where(
            frames.c.run_id == run_id,
            frames.c.attempt == key.attempt,
            frames.c.rank == key.rank,
            frames.c.seq >= first_seq,
        )
        .order_by(frames.c.seq)
        .limit(limit)
    )
    if last_seq is not None:
        wanted = wanted.where(frames.c.seq <= last_seq)
    rows = (await connection.execute(wanted)).all()
    known = {
        layout_hash: await read_layout(connection, run_id, layout_hash)
        for layout_hash in {row[1] for row in rows}
    }
    return [
        CommittedFrame(
            run_id=run_id,
            attempt=key.attempt,
            rank=key.rank,
            seq=seq,
            frame=replace(decode_frame(body), attempt=key.attempt),
            layout=known[layout_hash],
            late=late,
        )
        for seq, layout_hash, late, body in rows
    ]


async def iterate_frames(
    connection: AsyncConnection,
    run_id: RunId,
    key: StreamKey,
    *,
    first_seq: int = 1,
    last_seq: int | None = None,
    chunk: int = 64,
) -> AsyncIterator[list[CommittedFrame]]:
    """All stored frames of a stream within bounds, some at a time."""
    while True:
        found = await read_frames(
            connection, run_id, key, first_seq=first_seq, last_seq=last_seq, limit=chunk
        )
        if not found:
            return
        yield found
        first_seq = found[-1].seq + 1


async def read_layout(
    connection: AsyncConnection, run_id: RunId, layout_hash: str
) -> Layout | None:
    if not layout_hash:
        return None
    found = await connection.execute(
        sa.select(layouts.c.document).where(
            layouts.c.run_id == run_id, layouts.c.hash == layout_hash
        )
    )
    document = zstandard.ZstdDecompressor().decompress(found.scalar_one())
    return Layout.from_document(msgspec.json.decode(document))


async def list_streams(connection: AsyncConnection, run_id: RunId) -> list[tuple[StreamKey, int]]:
    """The streams of a run, each with its newest sequence number."""
    found = await connection.execute(
        sa.select(streams.c.attempt, streams.c.rank, streams.c.max_seq)
        .where(streams.c.run_id == run_id)
        .order_by(streams.c.attempt, streams.c.rank)
    )
    return [(StreamKey(attempt, rank), max_seq) for attempt, rank, max_seq in found]


async def list_behind(connection: AsyncConnection) -> list[tuple[RunId, StreamKey, int]]:
    """The streams that hold frames which were not judged, each with its newest number."""
    joined = sa.outerjoin(
        streams,
        evaluations,
        (evaluations.c.run_id == streams.c.run_id)
        & (evaluations.c.attempt == streams.c.attempt)
        & (evaluations.c.rank == streams.c.rank),
    )
    found = await connection.execute(
        sa.select(streams.c.run_id, streams.c.attempt, streams.c.rank, streams.c.max_seq)
        .select_from(joined)
        .where(streams.c.max_seq > sa.func.coalesce(evaluations.c.evaluated_seq, 0))
    )
    return [
        (RunId(run_id), StreamKey(attempt, rank), max_seq)
        for run_id, attempt, rank, max_seq in found
    ]
