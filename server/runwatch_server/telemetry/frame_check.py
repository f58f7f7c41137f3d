"""The frames in the database read through, each unpacked: which of them have rotted."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import FrameError
from runwatch_server.db import Database
from runwatch_server.telemetry.queries import HotFrame
from runwatch_server.telemetry.stored_steps import unpack_hot
from runwatch_server.telemetry.tables import frames

_AT_ONCE: Final = 16
"""Frames in memory, of at most 8 MiB each and one of them unpacked, however many there are."""
_KEY: Final = sa.tuple_(*frames.primary_key.columns)


async def num_frames(connection: AsyncConnection) -> int:
    """How many lie in the database, and in no pack."""
    return await connection.scalar(sa.select(sa.func.count()).select_from(frames)) or 0


async def find_rotten(database: Database, on_read: Callable[[int], object]) -> list[str]:
    """Which frames cannot be read, and why, in words. Reads them all; `on_read` hears of how many
    more, again and again."""
    faults: list[str] = []
    async for some in _pages(database):
        faults += [fault for row in some if (fault := _fault(row)) is not None]
        on_read(len(some))
    return faults


async def _pages(database: Database) -> AsyncIterator[Sequence[Any]]:
    """Each a transaction of its own: a long one would keep the database from cleaning up."""
    query = sa.select(frames).order_by(*frames.primary_key.columns).limit(_AT_ONCE)
    after = query
    while True:
        async with database.read() as connection:
            rows = (await connection.execute(after)).all()
        if rows:
            yield rows
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1]
        after = query.where((last.run_id, last.attempt, last.rank, last.seq) < _KEY)


def _fault(row: Any) -> str | None:
    """What is wrong with a frame's row, None where nothing is."""
    hot = HotFrame(
        seq=row.seq,
        segment=row.segment,
        first_step=row.first_step,
        num_steps=row.num_steps,
        layout_hash=row.layout_hash,
        body=row.body,
    )
    try:
        unpack_hot(hot)
    except FrameError as error:
        place = f"run {row.run_id}, attempt {row.attempt}, rank {row.rank}, seq {row.seq}"
        return f"frame of {place}: {error}"
    return None
