"""Reads stored frames back: for streams that have fallen behind or are rebuilt, and for
backtests."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch import zstd
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts.evaluation import frame_queries
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.telemetry.committed_frames import CommittedFrame
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.packs.queries import next_pack
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.stored_steps import hot_gap, read_hot

_END: int = 2**62
_CHUNK_FRAMES: Final = 64


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some frames of a stream, in order."""

    frames: list[tuple[Frame, bool]]
    """Each frame, and whether it came late."""
    next_seq: int
    """The next frame has at least this number; beyond `_END` there are none."""
    gaps: list[Gap]


async def read_frames(
    connection: AsyncConnection,
    packs: PackReader,
    run_id: RunId,
    key: StreamKey,
    *,
    first_seq: int,
    last_seq: int | None = None,
    limit: int,
) -> list[CommittedFrame]:
    """The stored frames of a stream from a sequence number on, in order, without those that are
    corrupt or lost.

    Raises OverloadedError if some lie in an object store that does not answer now: judging without
    them would give another result than judging later.
    """
    end = _END if last_seq is None else last_seq
    while first_seq <= end:
        batch = await _next_batch(connection, packs, run_id, key, first_seq, end, limit)
        packs.note(run_id, key.attempt, key.rank, batch.gaps)
        if any(gap.reason is GapReason.LATE for gap in batch.gaps):
            raise OverloadedError(
                "objects_away", "The object store does not answer.", retry_after_s=15
            )
        if batch.frames:
            return await _committed(connection, run_id, key, batch)
        first_seq = batch.next_seq
    return []


async def iterate_frames(
    database: Database, packs: PackReader, run_id: RunId, key: StreamKey, last_seq: int
) -> AsyncIterator[list[CommittedFrame]]:
    """The stored frames of a stream up to a sequence number, some at a time. The consumer may take
    as long as it likes: the connection used for reading is returned before each yield. Raises what
    `read_frames` raises."""
    first_seq = 1
    while True:
        async with database.read() as connection:
            found = await read_frames(
                connection,
                packs,
                run_id,
                key,
                first_seq=first_seq,
                last_seq=last_seq,
                limit=_CHUNK_FRAMES,
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
    packed = await frame_queries.find_layout(connection, run_id, layout_hash)
    document = zstd.decompress(packed)
    return Layout.from_document(msgspec.json.decode(document))


async def _next_batch(
    connection: AsyncConnection,
    packs: PackReader,
    run_id: RunId,
    key: StreamKey,
    first_seq: int,
    last_seq: int,
    limit: int,
) -> _Batch:
    """The next frames: from the database up to the next pack, or else from that pack."""
    pack = await next_pack(connection, run_id, key.attempt, key.rank, seq=first_seq)
    before_pack = last_seq if pack is None else min(last_seq, pack.first_seq - 1)
    if first_seq <= before_pack:
        hot = await frame_queries.find_frames(
            connection, run_id, key, first_seq=first_seq, last_seq=before_pack, limit=limit
        )
        if hot:
            read = [(read_hot(stored.hot), stored) for stored in hot]
            return _Batch(
                [(frame, stored.late) for frame, stored in read if frame is not None],
                hot[-1].hot.seq + 1,
                [hot_gap(stored.hot) for frame, stored in read if frame is None],
            )
    if pack is None or pack.first_seq > last_seq:
        return _Batch([], _END + 1, [])
    first_seq = max(first_seq, pack.first_seq)
    upto = min(pack.last_seq, last_seq, first_seq + limit - 1)
    cold = await packs.frames(pack, first_seq, upto)
    return _Batch([(one.frame, one.late) for one in cold.items], upto + 1, cold.gaps)


async def _committed(
    connection: AsyncConnection, run_id: RunId, key: StreamKey, batch: _Batch
) -> list[CommittedFrame]:
    known = {
        layout_hash: await read_layout(connection, run_id, layout_hash)
        for layout_hash in {frame.layout_hash for frame, _ in batch.frames}
    }
    return [
        CommittedFrame(
            run_id=run_id,
            attempt=key.attempt,
            rank=key.rank,
            seq=frame.seq,
            frame=replace(frame, attempt=key.attempt),
            layout=known[frame.layout_hash],
            late=late,
        )
        for frame, late in batch.frames
    ]
