"""Frames read back from disk, for a stream that has fallen behind or is built again."""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import zstandard
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import decode_frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts import frame_queries
from runwatch_server.alerts.stream import StreamKey
from runwatch_server.telemetry.seams import CommittedFrame


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
    found = await frame_queries.find_frames(
        connection, run_id, key, first_seq=first_seq, last_seq=last_seq, limit=limit
    )
    known = {
        layout_hash: await read_layout(connection, run_id, layout_hash)
        for layout_hash in {stored.layout_hash for stored in found}
    }
    return [
        CommittedFrame(
            run_id=run_id,
            attempt=key.attempt,
            rank=key.rank,
            seq=stored.seq,
            frame=replace(decode_frame(stored.body), attempt=key.attempt),
            layout=known[stored.layout_hash],
            late=stored.late,
        )
        for stored in found
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
    packed = await frame_queries.find_layout(connection, run_id, layout_hash)
    document = zstandard.ZstdDecompressor().decompress(packed)
    return Layout.from_document(msgspec.json.decode(document))
