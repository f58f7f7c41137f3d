"""Counts and removes what retention may remove of a run's telemetry: frames that are in rollups,
with or without the evidence, which are the frames around each alert; and the rollups of layers.

Each removal handles a chunk, for one transaction. It returns how much it removed, and 0 if nothing
is left.
"""

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, Severity
from runwatch_server.alerts.records import Resolution
from runwatch_server.alerts.tables import alerts
from runwatch_server.telemetry.packs.queries import delete_packs, packs_among
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import frames, histograms, rollups, segments

EVIDENCE_STEPS: Final = 2048
"""Frames this many steps before an alert's onset and after its end stay as they were received."""
_CHUNK_FRAMES: Final = 500
_CHUNK_PACKS: Final = 50
_CHUNK_TILES: Final = 500
_ALERT_END: Final = sa.case(
    (alerts.c.resolution == Resolution.RUN_ENDED.value, alerts.c.last_step),
    else_=sa.func.coalesce(alerts.c.resolved_step, alerts.c.last_step),
)
"""An alert that was never resolved lasts to the run's end; the evidence is how it came about."""
_KEY: Final = (frames.c.run_id, frames.c.attempt, frames.c.rank, frames.c.seq)
_IN_ROLLUPS: Final = sa.or_(
    frames.c.num_steps == 0,  # it brought events, which are stored by themselves
    sa.exists().where(
        segments.c.run_id == frames.c.run_id,
        segments.c.attempt == frames.c.attempt,
        segments.c.rank == frames.c.rank,
        segments.c.segment == frames.c.segment,
        frames.c.first_step + frames.c.num_steps <= segments.c.rolled_to,
    ),
)
_PINS: Final = sa.and_(alerts.c.firing_step.is_not(None), alerts.c.severity != Severity.INFO.value)
"""Whether an alert keeps the frames around it: what only informs is not looked into later."""
_IS_EVIDENCE: Final = (
    sa.select(alerts.c.id)
    .where(
        alerts.c.run_id == frames.c.run_id,
        alerts.c.attempt >= frames.c.attempt,  # its cause may lie in an earlier attempt
        _PINS,
        frames.c.first_step + frames.c.num_steps > alerts.c.onset_step - EVIDENCE_STEPS,
        frames.c.first_step <= _ALERT_END + EVIDENCE_STEPS,
    )
    .exists()
)


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount of what can be removed."""

    number: int = 0
    num_bytes: int = 0

    def without(self, other: "Amount") -> "Amount":
        return Amount(self.number - other.number, self.num_bytes - other.num_bytes)


async def held_frames(connection: AsyncConnection, run_id: RunId) -> Amount:
    """All frames, in packs or not."""
    hot = sa.select(sa.func.count(), sa.func.sum(sa.func.length(frames.c.body)))
    num_packed = sa.func.sum(packs.c.last_seq - packs.c.first_seq + 1)
    packed = sa.select(num_packed, sa.func.sum(packs.c.num_bytes))
    found = [
        (await connection.execute(hot.where(frames.c.run_id == run_id))).one(),
        (await connection.execute(packed.where(packs.c.run_id == run_id))).one(),
    ]
    return Amount(*(sum(int(row[place] or 0) for row in found) for place in (0, 1)))


async def removable_frames(
    connection: AsyncConnection, run_id: RunId, *, with_evidence: bool
) -> Amount:
    """Frames, in packs or not, that lie wholly in rollups."""
    hot = _removable(run_id, with_evidence).subquery()
    packed = _removable_packs(run_id, with_evidence).subquery()
    is_hot = sa.and_(*(column == hot.c[column.name] for column in _KEY))
    of_hot = sa.select(sa.func.count(), sa.func.sum(sa.func.length(frames.c.body)))
    num_packed = sa.func.sum(packed.c.last_seq - packed.c.first_seq + 1)
    found = [
        (await connection.execute(of_hot.select_from(frames).join(hot, is_hot))).one(),
        (await connection.execute(sa.select(num_packed, sa.func.sum(packed.c.num_bytes)))).one(),
    ]
    return Amount(*(sum(int(row[place] or 0) for row in found) for place in (0, 1)))


async def remove_frames(connection: AsyncConnection, run_id: RunId, *, with_evidence: bool) -> int:
    """Remove frames that are not in packs and lie wholly in rollups."""
    found = (await connection.execute(_removable(run_id, with_evidence).limit(_CHUNK_FRAMES))).all()
    if found:
        await _move_marks(connection, run_id)
        keys = [tuple(row) for row in found]
        await connection.execute(frames.delete().where(sa.tuple_(*_KEY).in_(keys)))
    return len(found)


async def remove_packs(
    connection: AsyncConnection, run_id: RunId, *, with_evidence: bool, now: float
) -> int:
    """Remove packs; returns how many frames they held. Their objects are loose from then on, and
    the sweep removes them."""
    query = _removable_packs(run_id, with_evidence).limit(_CHUNK_PACKS)
    found = await packs_among(connection, query)
    if found:
        await _move_marks(connection, run_id)
        await delete_packs(connection, found, now=now)
    return sum(pack.last_seq - pack.first_seq + 1 for pack in found)


async def removable_rollups(connection: AsyncConnection, run_id: RunId) -> Amount:
    """The tiles of layers' stats."""
    size = sa.select(sa.func.count(), sa.func.sum(sa.func.length(rollups.c.data)))
    row = (await connection.execute(size.where(*_of_layers(run_id)))).one()
    return Amount(int(row[0] or 0), int(row[1] or 0))


async def removable_histograms(connection: AsyncConnection, run_id: RunId) -> Amount:
    """Counted in steps per kind and rank, as `histogram_store.remove_histograms` counts them."""
    size = sa.func.length(histograms.c.names) + sa.func.length(histograms.c.packed)
    steps = (
        sa.select(sa.func.sum(size).label("num_bytes"))
        .where(histograms.c.run_id == run_id)
        .group_by(histograms.c.kind, histograms.c.rank, histograms.c.step)
        .subquery()
    )
    query = sa.select(sa.func.count(), sa.func.sum(steps.c.num_bytes)).select_from(steps)
    row = (await connection.execute(query)).one()
    return Amount(int(row[0] or 0), int(row[1] or 0))


async def remove_rollups(connection: AsyncConnection, run_id: RunId) -> int:
    """Remove the rollups of layers; metrics stay, step by step."""
    keys = list(rollups.primary_key.columns)
    chunk = sa.select(*keys).where(*_of_layers(run_id)).limit(_CHUNK_TILES)
    removed = await connection.execute(
        rollups.delete().where(
            rollups.c.run_id == run_id, sa.tuple_(*keys).in_(chunk.subquery().select())
        )
    )
    return removed.rowcount


def _of_layers(run_id: RunId) -> tuple[sa.ColumnElement[bool], ...]:
    return (rollups.c.run_id == run_id, rollups.c.layout_hash != "")


def _removable(run_id: RunId, with_evidence: bool) -> sa.Select[str, int, int, int]:
    query = sa.select(*_KEY).where(frames.c.run_id == run_id, _IN_ROLLUPS)
    return query if with_evidence else query.where(~_IS_EVIDENCE)


def _removable_packs(run_id: RunId, with_evidence: bool) -> sa.Select[*tuple[Any, ...]]:
    """Packs that lie wholly in rollups."""
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
            alerts.c.attempt >= packs.c.attempt,
            _PINS,
            packs.c.last_step >= alerts.c.onset_step - EVIDENCE_STEPS,
            packs.c.first_step <= _ALERT_END + EVIDENCE_STEPS,
        )
        .exists()
    )
    query = sa.select(packs).join(segments, in_rollups).where(packs.c.run_id == run_id)
    return query if with_evidence else query.where(~is_evidence)


async def _move_marks(connection: AsyncConnection, run_id: RunId) -> None:
    await connection.execute(
        segments.update().where(segments.c.run_id == run_id).values(raw_from=segments.c.rolled_to)
    )
