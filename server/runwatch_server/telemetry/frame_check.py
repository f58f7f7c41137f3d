"""Reads through all frames in the database and unpacks each, to find those that are corrupt."""

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
"""Frames held in memory at once, of at most 8 MiB each, with one of them unpacked; a fixed number,
however many are stored."""
_KEY: Final = sa.tuple_(*frames.primary_key.columns)


async def num_frames(connection: AsyncConnection) -> int:
    """Number of frames in the database that are not in a pack."""
    return await connection.scalar(sa.select(sa.func.count()).select_from(frames)) or 0


async def find_damaged(database: Database, on_read: Callable[[int], object]) -> list[str]:
    """Describe each frame that cannot be read, and why. Reads all frames; `on_read` is called again
    and again with the number of further frames read."""
    faults: list[str] = []
    async for some in _pages(database):
        faults += [fault for row in some if (fault := _fault(row)) is not None]
        on_read(len(some))
    return faults


async def _pages(database: Database) -> AsyncIterator[Sequence[Any]]:
    """Pages of frames, each in a transaction of its own: a long one would keep the database from
    cleaning up."""
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
    """What is wrong with a frame's row; None if nothing is."""
    try:
        unpack_hot(HotFrame.of(row, row.body))
    except FrameError as error:
        place = f"run {row.run_id}, attempt {row.attempt}, rank {row.rank}, seq {row.seq}"
        return f"frame of {place}: {error}"
    return None
