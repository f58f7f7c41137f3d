"""All queries of the table of notices: which alerts people are notified of, and as which cases."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import AlertId, RunId
from runwatch_server.alerts.queries import find_alerts
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.commands.queries import list_for_alert
from runwatch_server.notify.cases import Case
from runwatch_server.notify.settling import settles_at
from runwatch_server.notify.tables import IS_SETTLING, notices
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.runs.tables import runs


async def insert_notice(
    connection: AsyncConnection, alert: AlertRecord, *, layer_group: str, times: int, at: float
) -> bool:
    """Insert a notice; returns whether it is new. People already know of an alert that relapses."""
    known = await connection.execute(sa.select(notices.c.fired_at).where(*_of(alert)))
    if known.first() is not None:
        return False
    await connection.execute(
        sa.insert(notices).values(
            run_id=alert.run_id,
            alert_id=alert.id,
            fired_at=at,
            layer_group=layer_group,
            times=times,
        )
    )
    return True


async def resolve_notice(connection: AsyncConnection, alert: AlertRecord, *, at: float) -> bool:
    """Mark a notice as resolved; returns whether there was one."""
    is_open = notices.c.resolved_at.is_(None)
    found = await connection.execute(sa.select(notices.c.times).where(*_of(alert), is_open))
    row = found.first()
    if row is None:
        return False
    settles_step = settles_at(alert, row.times or 1)
    await connection.execute(
        sa.update(notices).where(*_of(alert)).values(resolved_at=at, settles_step=settles_step)
    )
    return True


async def list_ended(connection: AsyncConnection, run_id: RunId) -> list[AlertId]:
    """The alerts of a run that people were notified of and that are over."""
    found = await connection.scalars(
        sa.select(notices.c.alert_id).where(
            notices.c.run_id == run_id, notices.c.resolved_at.is_not(None)
        )
    )
    return [AlertId(alert_id) for alert_id in found]


async def list_standing(
    connection: AsyncConnection,
    tasks: PerRunTasks,
    *,
    since: float,
    also: Collection[AlertId] = (),
) -> list[Case]:
    """Alerts that go on or settle, those resolved since a time, and those named; the newest last.
    Without their commands. A damaged one is left out and counts as failed work."""
    wanted = notices.c.resolved_at.is_(None) | IS_SETTLING
    wanted |= notices.c.resolved_at >= since
    return await _cases(connection, wanted | notices.c.alert_id.in_(also), tasks)


async def find_cases(
    connection: AsyncConnection, tasks: PerRunTasks, alert_ids: Collection[AlertId]
) -> dict[AlertId, Case]:
    """The cases of alerts, without their commands. A damaged one is left out and counts as failed
    work."""
    cases = await _cases(connection, notices.c.alert_id.in_(alert_ids), tasks)
    return {case.alert.id: case for case in cases}


async def with_commands(connection: AsyncConnection, cases: Sequence[Case]) -> list[Case]:
    return [
        replace(case, commands=await list_for_alert(connection, case.alert.run_id, case.alert.id))
        for case in cases
    ]


async def _cases(
    connection: AsyncConnection, wanted: sa.ColumnElement[bool], tasks: PerRunTasks
) -> list[Case]:
    found = await connection.execute(
        sa.select(notices, runs.c.name)
        .join_from(notices, runs, runs.c.id == notices.c.run_id)
        .where(wanted)
        .order_by(notices.c.fired_at, notices.c.alert_id)
    )
    rows = found.mappings().all()
    records = await _readable(connection, rows, tasks)
    return [
        Case(
            alert=records[row["alert_id"]],
            run_name=row["name"],
            layer_group=row["layer_group"],
            fired_at=row["fired_at"],
            resolved_at=row["resolved_at"],
            times=row["times"] or 1,
            settles_step=row["settles_step"],
            commands=(),
        )
        for row in rows
        if row["alert_id"] in records
    ]


async def _readable(
    connection: AsyncConnection, rows: Sequence[sa.RowMapping], tasks: PerRunTasks
) -> dict[AlertId, AlertRecord]:
    """The alerts of these notices: in one query, or one by one if one of them is damaged."""
    ids = [AlertId(row["alert_id"]) for row in rows]
    try:
        return await find_alerts(connection, ids)
    except (msgspec.MsgspecError, ValueError):
        found: dict[AlertId, AlertRecord] = {}
        for alert_id, row in zip(ids, rows, strict=True):
            read = partial(find_alerts, connection, [alert_id])
            found |= await tasks.do(RunId(row["run_id"]), read, part=f"alert {alert_id}") or {}
        return found


def _of(alert: AlertRecord) -> Sequence[sa.ColumnElement[bool]]:
    return notices.c.run_id == alert.run_id, notices.c.alert_id == alert.id
