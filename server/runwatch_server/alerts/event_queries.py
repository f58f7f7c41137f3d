"""Queries for the events of alerts, and for those of their runs."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.stalls import STALL, Stall, StalledRank
from runwatch.vocabulary import AlertId, RunId
from runwatch_server.alerts.records import (
    AlertEvent,
    AlertRecord,
    RunEvent,
)
from runwatch_server.alerts.tables import alert_events
from runwatch_server.db import EVENTS, wait_for_lock
from runwatch_server.telemetry.host_queries import HOST
from runwatch_server.telemetry.tables import events

_MOST_PHASE_EVENTS: Final = 1000
_MOST_STALLS: Final = 10_000
"""Each rank tells a handful while a run hangs."""
_OF_EACH_RANK: Final = (HOST, STALL)
"""Kinds of events that every rank tells: hundreds would leave no room for the others."""


async def append_event(
    connection: AsyncConnection,
    record: AlertRecord,
    kind: str,
    *,
    at: float,
    actor: str = "rules",
    step: int | None = None,
    detail: Mapping[str, object] | None = None,
) -> None:
    await wait_for_lock(connection, EVENTS)
    await connection.execute(
        sa.insert(alert_events).values(
            run_id=record.run_id,
            alert_id=record.id,
            kind=kind,
            step=step,
            at=at,
            actor=actor,
            detail=msgspec.json.encode(detail or {}).decode(),
        )
    )


async def list_events(
    connection: AsyncConnection, run_id: RunId, alert_id: AlertId
) -> list[AlertEvent]:
    found = await connection.execute(
        sa.select(alert_events)
        .where(alert_events.c.run_id == run_id, alert_events.c.alert_id == alert_id)
        .order_by(alert_events.c.number)
    )
    return [_event(row) for row in found.mappings()]


async def last_event(
    connection: AsyncConnection, record: AlertRecord, *, kind: str | None = None
) -> AlertEvent | None:
    """The newest event of an alert, of any kind or of one."""
    query = sa.select(alert_events).where(
        alert_events.c.run_id == record.run_id, alert_events.c.alert_id == record.id
    )
    if kind is not None:
        query = query.where(alert_events.c.kind == kind)
    found = await connection.execute(query.order_by(alert_events.c.number.desc()).limit(1))
    row = found.mappings().first()
    return None if row is None else _event(row)


async def list_events_after(
    connection: AsyncConnection, number: int, *, run_id: RunId | None, limit: int
) -> list[AlertEvent]:
    """Events of alerts after the given one, in the order in which they were written."""
    wanted = sa.select(alert_events).where(alert_events.c.number > number)
    if run_id is not None:
        wanted = wanted.where(alert_events.c.run_id == run_id)
    found = await connection.execute(wanted.order_by(alert_events.c.number).limit(limit))
    return [_event(row) for row in found.mappings()]


async def last_event_number(connection: AsyncConnection, run_id: RunId) -> int:
    """Of a run: its events are committed in the order of their numbers; those of all are not."""
    events = sa.select(sa.func.max(alert_events.c.number))
    found = await connection.execute(events.where(alert_events.c.run_id == run_id))
    return found.scalar_one() or 0


async def list_run_events(
    connection: AsyncConnection,
    run_id: RunId,
    *,
    attempt: int,
    first_step: int,
    last_step: int,
    limit: int,
) -> list[RunEvent]:
    """Events of a run between two steps, oldest first, without those that every rank tells."""
    found = await connection.execute(
        sa.select(events)
        .where(
            events.c.run_id == run_id,
            events.c.attempt == attempt,
            events.c.step.between(first_step, last_step),
            events.c.kind.not_in(_OF_EACH_RANK),
        )
        .order_by(events.c.step.desc(), events.c.id.desc())
        .limit(limit)
    )
    return [_run_event(row) for row in reversed(found.mappings().all())]


async def list_phase_events(connection: AsyncConnection, run_id: RunId) -> list[RunEvent]:
    """The events at which a run's phases began and ended, oldest first; if there are very many, the
    newest of them."""
    found = await connection.execute(
        sa.select(events)
        .where(events.c.run_id == run_id, events.c.kind == "phase")
        .order_by(events.c.id.desc())
        .limit(_MOST_PHASE_EVENTS)
    )
    return [_run_event(row) for row in reversed(found.mappings().all())]


async def list_stalls(
    connection: AsyncConnection, run_id: RunId, attempt: int, *, first_step: int
) -> list[StalledRank]:
    """What each rank that stands still at the given step or later told last, in the order of
    ranks; what is not understood is left out."""
    found = await connection.execute(
        sa.select(events.c.rank, events.c.step, events.c.detail)
        .where(
            events.c.run_id == run_id,
            events.c.kind == STALL,
            events.c.attempt == attempt,
            events.c.step >= first_step,
        )
        .order_by(events.c.id.desc())
        .limit(_MOST_STALLS)
    )
    newest: dict[int, StalledRank] = {}
    for row in found:
        stall = Stall.of_detail(msgspec.json.decode(row.detail))
        if stall is not None and row.rank not in newest:
            newest[row.rank] = StalledRank(row.rank, row.step, None, stall)
    return [newest[rank] for rank in sorted(newest)]


def _run_event(row: sa.RowMapping) -> RunEvent:
    return RunEvent(
        step=row["step"],
        kind=row["kind"],
        at=row["at"],
        source=row["source"],
        detail=msgspec.json.decode(row["detail"], type=dict[str, object]),
    )


def _event(row: sa.RowMapping) -> AlertEvent:
    columns: dict[str, Any] = {**row, "detail": msgspec.json.decode(row["detail"])}
    return AlertEvent(**columns)
