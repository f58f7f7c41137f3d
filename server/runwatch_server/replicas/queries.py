"""All queries of the tables of leases and of signs of life; for PostgreSQL only.

Times are the database's, because replicas may have different clocks.
"""

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import Phase, RunId
from runwatch_server.alerts.evaluation.frame_queries import RUNS_GOING_ON, STREAMS_BEHIND
from runwatch_server.alerts.queries import IS_OPEN
from runwatch_server.alerts.tables import alerts
from runwatch_server.replicas.tables import leases, signs
from runwatch_server.runs.rank_activity import LifeSign
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import streams

_NOW: Final = sa.extract("epoch", sa.func.clock_timestamp()).cast(sa.Double)
_CHUNK_ROWS: Final = 500
"""Rows of one INSERT, which may have 32767 parameters."""
_SIGN_COLUMNS: Final = [column.name for column in signs.c if not column.primary_key]

# Built once: they run every second or two, and building takes longer than running.
_IS_HELD: Final = sa.select(
    runs.c.id, sa.func.coalesce(leases.c.expires_at > _NOW, False).label("is_held")
).outerjoin_from(runs, leases, leases.c.name == runs.c.id)
_WITH_OPEN_ALERTS: Final = sa.select(alerts.c.run_id).where(IS_OPEN)
_IN_SIGHT: Final = sa.union(RUNS_GOING_ON, _WITH_OPEN_ALERTS)
_WITH_UNJUDGED: Final = STREAMS_BEHIND.with_only_columns(streams.c.run_id)
_ALL_TO_OWN: Final = sa.union(RUNS_GOING_ON, _WITH_OPEN_ALERTS, _WITH_UNJUDGED)
_IN_SIGHT_TO_OWN: Final = _IS_HELD.where(runs.c.id.in_(_IN_SIGHT))
_RUNS_TO_OWN: Final = _IS_HELD.where(runs.c.id.in_(_ALL_TO_OWN))
_PRESENT: Final = sa.select(_NOW.label("now")).cte("present")
_SIGNS_OF_OTHERS: Final = (
    sa.select(signs, _PRESENT.c.now)
    .join_from(signs, _PRESENT, sa.true())
    .where(signs.c.noted_at >= sa.bindparam("since"), signs.c.noted_by != sa.bindparam("but_by"))
)


async def read_clock(connection: AsyncConnection) -> float:
    """What time it is, in Unix seconds."""
    now: float = (await connection.execute(sa.select(_NOW))).scalar_one()
    return now


async def take_lease(
    connection: AsyncConnection, name: str, *, owner: str, lease_s: float
) -> int | None:
    """Take a lease; returns its epoch, or None if somebody has it."""
    fresh = postgresql.insert(leases).values(
        name=name, owner=owner, epoch=1, expires_at=_NOW + lease_s
    )
    taken = fresh.on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={"owner": owner, "epoch": leases.c.epoch + 1, "expires_at": _NOW + lease_s},
        where=leases.c.expires_at <= _NOW,
    ).returning(leases.c.epoch)
    epoch: int | None = await connection.scalar(taken)
    return epoch


async def renew_leases(connection: AsyncConnection, *, owner: str, lease_s: float) -> set[str]:
    """Renew all leases that have not expired; returns their names."""
    renewed = (
        leases.update()
        .where(leases.c.owner == owner, leases.c.expires_at > _NOW)
        .values(expires_at=_NOW + lease_s)
        .returning(leases.c.name)
    )
    return set(await connection.scalars(renewed))


async def end_leases(connection: AsyncConnection, names: Collection[str], *, owner: str) -> None:
    """Release leases, so that others can take them at once."""
    await connection.execute(
        leases.update()
        .where(leases.c.owner == owner, leases.c.name.in_(names))
        .values(expires_at=0.0)
    )


async def holds_lease(connection: AsyncConnection, name: str, *, owner: str, epoch: int) -> bool:
    found = await connection.scalar(
        sa.select(leases.c.name).where(
            leases.c.name == name, leases.c.owner == owner, leases.c.epoch == epoch
        )
    )
    return found is not None


async def delete_old_leases(connection: AsyncConnection, *, older_than_s: float) -> None:
    await connection.execute(leases.delete().where(leases.c.expires_at < _NOW - older_than_s))
    await connection.execute(signs.delete().where(signs.c.noted_at < _NOW - older_than_s))


async def list_runs_to_own(
    connection: AsyncConnection, *, with_unjudged: bool
) -> dict[RunId, bool]:
    """The runs that need an owner, each with whether somebody has its lease: runs that go on, that
    have open alerts or, if asked for, that hold unjudged frames."""
    found = await connection.execute(_RUNS_TO_OWN if with_unjudged else _IN_SIGHT_TO_OWN)
    return {RunId(row.id): row.is_held for row in found}


async def note_signs(connection: AsyncConnection, heard: Sequence[LifeSign], *, by: str) -> None:
    """Store the newest sign of each rank."""
    for start in range(0, len(heard), _CHUNK_ROWS):
        rows = [_row(sign, by) for sign in heard[start : start + _CHUNK_ROWS]]
        fresh = postgresql.insert(signs).values(rows)
        await connection.execute(
            fresh.on_conflict_do_update(
                index_elements=list(signs.primary_key.columns),
                set_={name: fresh.excluded[name] for name in _SIGN_COLUMNS},
                where=fresh.excluded.contact_at >= signs.c.contact_at,
            )
        )


async def read_signs(
    connection: AsyncConnection, *, since: float, but_by: str
) -> tuple[list[LifeSign], float]:
    """The signs that others have stored since a time, and the time of the newest."""
    found = await connection.execute(_SIGNS_OF_OTHERS, {"since": since, "but_by": but_by})
    rows = found.mappings().all()
    newest = max((row["noted_at"] for row in rows), default=since)
    return [_life_sign(row) for row in rows], newest


def _row(sign: LifeSign, by: str) -> dict[str, object]:
    return {
        "run_id": sign.run_id,
        "attempt": sign.attempt,
        "rank": sign.rank,
        "noted_by": by,
        "noted_at": _NOW,
        "contact_at": _NOW - sign.contact_age_s,
        "step_at": None if sign.step_age_s is None else _NOW - sign.step_age_s,
        "last_step": sign.last_step,
        "phase": sign.phase.value,
        "step_time_s": sign.step_time_s,
        "lr_scale": sign.lr_scale,
        "dropped_rows": sign.dropped_rows,
        "spooled_frames": sign.spooled_frames,
        "has_left": sign.has_left,
    }


def _life_sign(row: sa.RowMapping) -> LifeSign:
    now: float = row["now"]
    return LifeSign(
        run_id=RunId(row["run_id"]),
        attempt=row["attempt"],
        rank=row["rank"],
        contact_age_s=max(now - row["contact_at"], 0.0),
        step_age_s=None if row["step_at"] is None else max(now - row["step_at"], 0.0),
        last_step=row["last_step"],
        phase=Phase(row["phase"]),
        step_time_s=row["step_time_s"],
        lr_scale=row["lr_scale"],
        dropped_rows=row["dropped_rows"],
        spooled_frames=row["spooled_frames"],
        has_left=row["has_left"],
    )
