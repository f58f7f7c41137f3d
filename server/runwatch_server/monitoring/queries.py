"""Queries of what was last heard of runs."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.queries import IS_GOING_ON, NEWEST_FIRST, SPEAKING_ATTEMPT
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.queries import HOT_COLUMNS, HotFrame
from runwatch_server.telemetry.tables import frames


@dataclass(frozen=True, slots=True)
class Shown:
    """A run whose figures are shown, and the attempt that they are of."""

    run_id: RunId
    attempt: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stored frame of rank 0 that holds steps."""

    frame: HotFrame
    received_at: float


async def list_shown(connection: AsyncConnection, *, ended_after: float, limit: int) -> list[Shown]:
    """Runs that are open or ended lately: newest first, and those that nobody closed since they
    were lost after all others."""
    query = (
        sa.select(runs.c.id, SPEAKING_ATTEMPT, runs.c.current_attempt)
        .where(IS_GOING_ON | (runs.c.ended_at > ended_after))
        .order_by(runs.c.state == RunState.LOST.value, *NEWEST_FIRST)
        .limit(limit)
    )
    return [
        Shown(RunId(id_), attempt, current > 0)
        for id_, attempt, current in await connection.execute(query)
    ]


async def newest_frames(
    connection: AsyncConnection, run_id: RunId, attempt: int, *, limit: int
) -> list[Arrival]:
    """In order of their sequence numbers; none that are in packs."""
    query = (
        sa.select(*HOT_COLUMNS, frames.c.received_at)
        .where(frames.c.run_id == run_id, frames.c.attempt == attempt, frames.c.rank == 0)
        .where(frames.c.num_steps > 0)
        .order_by(frames.c.seq.desc())
        .limit(limit)
    )
    found = (await connection.execute(query)).all()
    return [Arrival(HotFrame.of(row, row.body), row.received_at) for row in reversed(found)]
