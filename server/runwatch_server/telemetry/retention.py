"""Frames of runs that ended long ago are removed; what was summed up of them stays, and so does
the evidence: the frames around each alert."""

from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts.records import Resolution
from runwatch_server.alerts.tables import alerts
from runwatch_server.db import Database
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.packs.queries import delete_packs, packs_among
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import frames, segments

EVIDENCE_STEPS: Final = 2048
"""Before an alert's onset and after its end: frames of these steps stay as they were received."""
_CHUNK_FRAMES: Final = 500
_CHUNK_PACKS: Final = 50
_ALERT_END: Final = sa.case(
    (alerts.c.resolution == Resolution.RUN_ENDED.value, alerts.c.last_step),
    else_=sa.func.coalesce(alerts.c.resolved_step, alerts.c.last_step),
)
"""What nobody mended holds to the run's end; the evidence is how it came about."""
_KEY: Final = (frames.c.run_id, frames.c.attempt, frames.c.rank, frames.c.seq)
_IN_ROLLUPS: Final = sa.and_(
    segments.c.run_id == frames.c.run_id,
    segments.c.attempt == frames.c.attempt,
    segments.c.rank == frames.c.rank,
    segments.c.segment == frames.c.segment,
    frames.c.num_steps > 0,
    frames.c.first_step + frames.c.num_steps <= segments.c.rolled_to,
)
_IS_EVIDENCE: Final = (
    sa.select(alerts.c.id)
    .where(
        alerts.c.run_id == frames.c.run_id,
        alerts.c.attempt == frames.c.attempt,
        alerts.c.firing_step.is_not(None),
        frames.c.first_step + frames.c.num_steps > alerts.c.onset_step - EVIDENCE_STEPS,
        frames.c.first_step <= _ALERT_END + EVIDENCE_STEPS,
    )
    .exists()
)


async def remove_old_frames(database: Database, *, before: float, now: float) -> int:
    """Removes the frames of runs that ended before a time; returns how many. The objects of packs
    are loose from then on: the sweep removes them.

    Only such as are wholly in rollups: the last steps of a segment, never summed up, stay.
    """
    removable = _removable(runs.c.id).exists() | _removable_packs(runs.c.id).exists()
    ended = sa.select(runs.c.id).where(runs.c.ended_at < before, removable)
    async with database.read() as connection:
        run_ids = [RunId(run_id) for run_id in await connection.scalars(ended)]
    removed = 0
    for run_id in run_ids:
        while num_frames := await database.write(
            partial(_remove_packs, run_id=run_id, now=now), of=run_id
        ):
            removed += num_frames
        while num_frames := await database.write(partial(_remove, run_id=run_id), of=run_id):
            removed += num_frames
    return removed


def _removable(run_id: RunId | sa.Column[str]) -> sa.Select[str, int, int, int]:
    return (
        sa.select(*_KEY).join(segments, _IN_ROLLUPS).where(frames.c.run_id == run_id, ~_IS_EVIDENCE)
    )


async def _remove(connection: AsyncConnection, run_id: RunId) -> int:
    found = (await connection.execute(_removable(run_id).limit(_CHUNK_FRAMES))).all()
    if found:
        await _move_marks(connection, run_id)
        keys = [tuple(row) for row in found]
        await connection.execute(frames.delete().where(sa.tuple_(*_KEY).in_(keys)))
    return len(found)


def _removable_packs(run_id: RunId | sa.Column[str]) -> sa.Select[*tuple[Any, ...]]:
    """Packs that are wholly in rollups, and hold no evidence."""
    in_rollups = sa.and_(
        segments.c.run_id == packs.c.run_id,
        segments.c.attempt == packs.c.attempt,
        segments.c.rank == packs.c.rank,
        segments.c.segment == packs.c.segment,
        packs.c.last_step < segments.c.rolled_to,
    )
    is_evidence = (
        sa.select(alerts.c.id)
        .where(
            alerts.c.run_id == packs.c.run_id,
            alerts.c.attempt == packs.c.attempt,
            alerts.c.firing_step.is_not(None),
            packs.c.last_step >= alerts.c.onset_step - EVIDENCE_STEPS,
            packs.c.first_step <= _ALERT_END + EVIDENCE_STEPS,
        )
        .exists()
    )
    return sa.select(packs).join(segments, in_rollups).where(packs.c.run_id == run_id, ~is_evidence)


async def _remove_packs(connection: AsyncConnection, run_id: RunId, now: float) -> int:
    """Returns how many frames were in them."""
    found = await packs_among(connection, _removable_packs(run_id).limit(_CHUNK_PACKS))
    if found:
        await _move_marks(connection, run_id)
        await delete_packs(connection, found, now=now)
    return sum(pack.last_seq - pack.first_seq + 1 for pack in found)


async def _move_marks(connection: AsyncConnection, run_id: RunId) -> None:
    await connection.execute(
        segments.update().where(segments.c.run_id == run_id).values(raw_from=segments.c.rolled_to)
    )
