"""Reads stored frames back: for streams that have fallen behind or are rebuilt, and for
backtests. How much memory they take is known before any of them is unpacked."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch import zstd
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts.evaluation import frame_queries
from runwatch_server.alerts.evaluation.frame_queries import FrameSize, StoredFrame
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.telemetry.committed_frames import CommittedFrame
from runwatch_server.telemetry.frame_budget import unpacking_bytes
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.packs.queries import PackRow, next_pack
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.stored_steps import hot_gap, read_hot

_END: int = 2**62
_CHUNK_FRAMES: Final = 64
_BATCH_BYTES: Final = 16 * 2**20
"""Most memory that frames read at a time may take, unless a single one takes more."""
_INLINE_BYTES: Final = 2**20
"""Frames that take no more are unpacked on the event loop, in a millisecond or two."""
_LAYER_BYTES: Final = 256
"""Memory that a layer of a layout takes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive frames of a stream that are stored and not read yet."""

    run_id: RunId
    key: StreamKey
    first_seq: int
    last_seq: int
    layouts: Mapping[str, Layout | None]
    num_bytes: int
    """Most memory that they take while they are unpacked."""
    pack: PackRow | None
    """The pack that holds them, if they are in one."""


async def next_batch(
    connection: AsyncConnection,
    run_id: RunId,
    key: StreamKey,
    *,
    first_seq: int,
    last_seq: int | None = None,
    limit: int,
) -> Batch | None:
    """The next stored frames of a stream, from the database up to the next pack, or else from that
    pack: at most so many, and not more than memory is meant for, except that it is at least one.
    None if there are no more."""
    end = _END if last_seq is None else last_seq
    pack = await next_pack(connection, run_id, key.attempt, key.rank, seq=first_seq)
    before_pack = end if pack is None else min(end, pack.first_seq - 1)
    hot = await frame_queries.list_sizes(
        connection, run_id, key, first_seq=first_seq, last_seq=before_pack, limit=limit
    )
    if hot:
        return await _fitting(connection, run_id, key, hot, None)
    if pack is None or pack.first_seq > end:
        return None
    first_seq = max(first_seq, pack.first_seq)
    upto = min(pack.last_seq, end, first_seq + limit - 1)
    return await _fitting(connection, run_id, key, _packed_sizes(pack, first_seq, upto), pack)


async def read_batch(database: Database, packs: PackReader, batch: Batch) -> list[CommittedFrame]:
    """The frames of a batch, in order, without those that are corrupt or lost.

    Raises OverloadedError if some lie in an object store that does not answer now: judging without
    them would give another result than judging later.
    """
    if batch.pack is not None:
        cold = await packs.frames(batch.pack, batch.first_seq, batch.last_seq)
        read, gaps = [(one.frame, one.late) for one in cold.items], cold.gaps
    else:
        read, gaps = await _read_hot(database, batch)
    packs.note(batch.run_id, batch.key.attempt, batch.key.rank, gaps)
    if any(gap.reason is GapReason.LATE for gap in gaps):
        raise OverloadedError("objects_away", "The object store does not answer.", retry_after_s=15)
    return [_committed(batch, frame, late) for frame, late in read]


async def iterate_frames(
    database: Database, packs: PackReader, run_id: RunId, key: StreamKey, last_seq: int
) -> AsyncIterator[list[CommittedFrame]]:
    """The stored frames of a stream up to a sequence number, some at a time. The consumer may take
    as long as it likes: the connection used for reading is returned before each yield. Raises what
    `read_batch` raises."""
    first_seq = 1
    while True:
        async with database.read() as connection:
            batch = await next_batch(
                connection,
                run_id,
                key,
                first_seq=first_seq,
                last_seq=last_seq,
                limit=_CHUNK_FRAMES,
            )
        if batch is None:
            return
        if found := await read_batch(database, packs, batch):
            yield found
        first_seq = batch.last_seq + 1


async def read_layout(
    connection: AsyncConnection, run_id: RunId, layout_hash: str
) -> Layout | None:
    if not layout_hash:
        return None
    packed = await frame_queries.find_layout(connection, run_id, layout_hash)
    document = zstd.decompress(packed)
    return Layout.from_document(msgspec.json.decode(document))


async def _fitting(
    connection: AsyncConnection,
    run_id: RunId,
    key: StreamKey,
    sizes: Sequence[FrameSize],
    pack: PackRow | None,
) -> Batch:
    """The first frames that together take no more memory than is meant for them."""
    num_metrics = await frame_queries.count_metrics(connection, run_id)
    layouts: dict[str, Layout | None] = {}
    num_bytes = 0 if pack is None else pack.num_bytes
    last_seq = 0
    for size in sizes:
        if size.layout_hash not in layouts:
            layouts[size.layout_hash] = await read_layout(connection, run_id, size.layout_hash)
        more = _most_bytes(size, num_metrics, layouts[size.layout_hash])
        if last_seq and num_bytes + more > _BATCH_BYTES:
            break
        num_bytes, last_seq = num_bytes + more, size.seq
    return Batch(run_id, key, sizes[0].seq, last_seq, layouts, num_bytes, pack)


def _most_bytes(size: FrameSize, num_metrics: int, layout: Layout | None) -> int:
    num_columns = 0 if layout is None else layout.num_columns
    num_layers = 0 if layout is None else len(layout.layers)
    block_bytes = size.num_steps * (8 * (1 + num_metrics) + 4 * num_columns)
    return unpacking_bytes(size.body_bytes, block_bytes) + _LAYER_BYTES * num_layers


def _packed_sizes(pack: PackRow, first_seq: int, last_seq: int) -> list[FrameSize]:
    contents = pack.directory.contents
    return [
        FrameSize(seq, frame.num_steps, contents.shapes[frame.shape].layout_hash, 0)
        for seq in range(first_seq, last_seq + 1)
        for frame in [contents.frames[seq - pack.first_seq]]
    ]


async def _read_hot(database: Database, batch: Batch) -> tuple[list[tuple[Frame, bool]], list[Gap]]:
    async with database.read() as connection:
        stored = await frame_queries.find_frames(
            connection,
            batch.run_id,
            batch.key,
            first_seq=batch.first_seq,
            last_seq=batch.last_seq,
        )
    if batch.num_bytes <= _INLINE_BYTES:
        return _unpacked(stored)
    return await asyncio.to_thread(_unpacked, stored)


def _unpacked(stored: Sequence[StoredFrame]) -> tuple[list[tuple[Frame, bool]], list[Gap]]:
    read = [(read_hot(one.hot), one) for one in stored]
    return (
        [(frame, one.late) for frame, one in read if frame is not None],
        [hot_gap(one.hot) for frame, one in read if frame is None],
    )


def _committed(batch: Batch, frame: Frame, late: bool) -> CommittedFrame:
    return CommittedFrame(
        run_id=batch.run_id,
        attempt=batch.key.attempt,
        rank=batch.key.rank,
        seq=frame.seq,
        frame=replace(frame, attempt=batch.key.attempt),
        layout=batch.layouts[frame.layout_hash],
        late=late,
    )
