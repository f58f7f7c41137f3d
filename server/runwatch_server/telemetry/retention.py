"""Frames of runs that ended long ago are removed; what was summed up of them stays."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.db import Database
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import frames, segments

_CHUNK_FRAMES: Final = 500


async def remove_old_frames(database: Database, *, before: float) -> int:
    """Removes the frames of runs that ended before a time; returns how many.

    Only such as are wholly in rollups: the last steps of a segment, never summed up, stay.
    """
    removed = 0
    while num_frames := await database.write(lambda connection: _remove(connection, before)):
        removed += num_frames
    return removed


async def _remove(connection: AsyncConnection, before: float) -> int:
    query = (
        sa.select(
            frames.c.run_id,
            frames.c.attempt,
            frames.c.rank,
            frames.c.seq,
        )
        .join(runs, runs.c.id == frames.c.run_id)
        .join(
            segments,
            sa.and_(
                segments.c.run_id == frames.c.run_id,
                segments.c.attempt == frames.c.attempt,
                segments.c.rank == frames.c.rank,
                segments.c.segment == frames.c.segment,
            ),
        )
        .where(
            runs.c.ended_at < before,
            frames.c.num_steps > 0,
            frames.c.first_step + frames.c.num_steps <= segments.c.rolled_to,
        )
        .limit(_CHUNK_FRAMES)
    )
    found = (await connection.execute(query)).all()
    for run_id in {row.run_id for row in found}:
        await connection.execute(
            segments.update()
            .where(segments.c.run_id == run_id)
            .values(raw_from=segments.c.rolled_to)
        )
    for row in found:
        await connection.execute(
            frames.delete().where(
                frames.c.run_id == row.run_id,
                frames.c.attempt == row.attempt,
                frames.c.rank == row.rank,
                frames.c.seq == row.seq,
            )
        )
    return len(found)
