"""All queries over many runs at once."""

from collections.abc import Collection
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.messages import TEXT_LIMIT
from runwatch.vocabulary import RunId, RunState, Severity
from runwatch_server.alerts.records import LEFT
from runwatch_server.alerts.tables import alerts
from runwatch_server.fleet.records import (
    FleetCounts,
    FleetFilter,
    FleetRow,
    Group,
    Order,
    owner_of,
)
from runwatch_server.runs.queries import NEWEST_FIRST, SPEAKING_ATTEMPT
from runwatch_server.runs.tables import attempts, runs
from runwatch_server.telemetry.tables import frames

_SPEAKING: Final = (AlertState.FIRING.value, AlertState.RECOVERING.value)
_ENDED: Final = tuple(state.value for state in RunState if state.is_ended)

_CONFIGS_AT_ONCE: Final = 50
"""Runs whose configurations, from which the owner is read, are in memory at a time."""

_is_notifiable = sa.and_(alerts.c.inhibited_by.is_(None), ~alerts.c.shadow)


def _number_of(severity: Severity) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((alerts.c.severity == severity.value, 1), else_=0))


_firing = (
    sa.select(
        alerts.c.run_id,
        _number_of(Severity.CRITICAL).label("num_critical"),
        _number_of(Severity.WARNING).label("num_warning"),
        _number_of(Severity.INFO).label("num_info"),
        sa.func.min(alerts.c.firing_at).label("firing_since"),
    )
    .where(alerts.c.state.in_(_SPEAKING), _is_notifiable)
    .group_by(alerts.c.run_id)
    .subquery("firing")
)
_left = (
    sa.select(
        alerts.c.run_id,
        alerts.c.attempt,
        _number_of(Severity.CRITICAL).label("num_critical"),
        _number_of(Severity.WARNING).label("num_warning"),
    )
    .where(
        # With parameters, no database knows that the partial index ix_alerts_left serves.
        alerts.c.resolution.in_([sa.literal_column(f"'{one.value}'") for one in LEFT]),
        alerts.c.severity != sa.literal_column(f"'{Severity.INFO.value}'"),
        alerts.c.acked_at.is_(None),
        _is_notifiable,
    )
    .group_by(alerts.c.run_id, alerts.c.attempt)
    .subquery("left_open")
)
_critical = sa.func.coalesce(_firing.c.num_critical, 0)
_warning = sa.func.coalesce(_firing.c.num_warning, 0)
_critical_left = sa.func.coalesce(_left.c.num_critical, 0)
_warning_left = sa.func.coalesce(_left.c.num_warning, 0)
_is_ended = runs.c.state.in_(_ENDED)
_IS_CURRENT: Final = sa.and_(attempts.c.run_id == runs.c.id, attempts.c.attempt == SPEAKING_ATTEMPT)
# After a run has ended, its alerts still fire until they are closed.
_trouble: Final = sa.case(
    (sa.and_(_critical + _critical_left > 0, ~_is_ended), 0),
    (runs.c.state == RunState.LOST.value, 1),
    (runs.c.state == RunState.STALLED.value, 2),
    (sa.and_(_warning + _warning_left > 0, ~_is_ended), 3),
    (sa.or_(runs.c.state == RunState.FAILED.value, _critical + _critical_left > 0), 4),
    (_warning + _warning_left > 0, 5),
    (~_is_ended, 6),
    else_=7,
)
"""From 0, the worst; a run up to 5 needs a person's attention."""
_WORTH_A_LOOK: Final = 5


async def list_fleet(
    connection: AsyncConnection, wanted: FleetFilter, *, limit: int, offset: int = 0
) -> list[FleetRow]:
    """The runs that match, in the order that is wanted."""
    query = (
        sa.select(
            runs.c.id,
            _critical.label("num_critical"),
            _warning.label("num_warning"),
            sa.func.coalesce(_firing.c.num_info, 0).label("num_info"),
            _firing.c.firing_since,
            _critical_left.label("num_critical_left"),
            _warning_left.label("num_warning_left"),
        )
        .select_from(_joined(wanted))
        .where(*_conditions(wanted), *_choice(wanted))
        .order_by(*_order(wanted.order))
        .limit(limit)
        .offset(offset)
    )
    found = (await connection.execute(query)).mappings().all()
    arrived = await _arrivals(connection, [row["id"] for row in found])
    rows: list[FleetRow] = []
    for start in range(0, len(found), _CONFIGS_AT_ONCE):
        some = found[start : start + _CONFIGS_AT_ONCE]
        facts = await _facts(connection, [row["id"] for row in some])
        rows += [
            _row(facts[row["id"]], row, arrived.get(row["id"]))
            for row in some
            if row["id"] in facts  # else it was removed in between
        ]
    return rows


async def count_fleet(connection: AsyncConnection, wanted: FleetFilter) -> FleetCounts:
    """The number of runs of each kind, whichever group or state is chosen."""
    in_trouble = sa.func.sum(sa.case((_trouble <= _WORTH_A_LOOK, 1), else_=0))
    query = (
        sa.select(runs.c.state, sa.func.count().label("num_runs"), in_trouble.label("num_trouble"))
        .select_from(_joined(wanted))
        .where(*_conditions(wanted))
        .group_by(runs.c.state)
    )
    found = (await connection.execute(query)).all()
    return FleetCounts(
        {RunState(row.state): row.num_runs for row in found},
        sum(row.num_trouble for row in found),
    )


async def list_projects(connection: AsyncConnection, project: str | None) -> list[str]:
    """The projects that have runs and that the caller may see."""
    query = sa.select(runs.c.project).distinct().order_by(runs.c.project).limit(1000)
    if project is not None:
        query = query.where(runs.c.project == project)
    return list(await connection.scalars(query))


async def list_groups(connection: AsyncConnection, project: str | None) -> list[str]:
    """The names of run groups, in one project or in all."""
    query = sa.select(runs.c.run_group).distinct().order_by(runs.c.run_group).limit(1000)
    query = query.where(runs.c.run_group.is_not(None))
    if project is not None:
        query = query.where(runs.c.project == project)
    return list(await connection.scalars(query))


async def fleet_marks(
    connection: AsyncConnection, project: str | None
) -> dict[str, tuple[str, int | None, int]]:
    """State, last step and number of firing alerts of each run that has not ended, by its id.

    If one of them differs from before, the run has changed.
    """
    count = _critical + _warning
    query = (
        sa.select(runs.c.id, runs.c.state, runs.c.last_step, count.label("num_firing"))
        .select_from(runs.outerjoin(_firing, _firing.c.run_id == runs.c.id))
        .where(~_is_ended)
    )
    if project is not None:
        query = query.where(runs.c.project == project)
    return {
        row.id: (row.state, row.last_step, row.num_firing)
        for row in await connection.execute(query)
    }


def _joined(wanted: FleetFilter) -> sa.FromClause:
    """The runs, with as little beside them as there is to judge by: all of them are sorted."""
    is_of_last_attempt = sa.and_(_left.c.run_id == runs.c.id, _left.c.attempt == SPEAKING_ATTEMPT)
    joined = runs.outerjoin(_firing, _firing.c.run_id == runs.c.id)
    joined = joined.outerjoin(_left, is_of_last_attempt)
    return joined.outerjoin(attempts, _IS_CURRENT) if wanted.search else joined


def _conditions(wanted: FleetFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.project is not None:
        conditions.append(runs.c.project == wanted.project)
    if wanted.run_group is not None:
        conditions.append(runs.c.run_group == wanted.run_group)
    for word in wanted.search.split():
        texts = (
            *(runs.c.name, runs.c.project, runs.c.run_group, runs.c.id),
            *(runs.c.config, attempts.c.host),
        )
        conditions.append(sa.or_(*(text.icontains(word, autoescape=True) for text in texts)))
    return conditions


def _choice(wanted: FleetFilter) -> list[sa.ColumnElement[bool]]:
    chosen: list[sa.ColumnElement[bool]] = []
    match wanted.group:
        case Group.ALL:
            pass
        case Group.TROUBLE:
            chosen.append(_trouble <= _WORTH_A_LOOK)
        case Group.LIVE:
            chosen.append(~_is_ended)
        case Group.ENDED:
            chosen.append(_is_ended)
    if wanted.state is not None:
        chosen.append(runs.c.state == wanted.state.value)
    return chosen


def _order(order: Order) -> tuple[sa.ColumnElement[Any], ...]:
    match order:
        case Order.TROUBLE:
            return (_trouble, *NEWEST_FIRST)
        case Order.NEWEST:
            return NEWEST_FIRST
        case Order.NAME:
            return (sa.func.lower(runs.c.name), *NEWEST_FIRST)


async def _facts(connection: AsyncConnection, run_ids: Collection[str]) -> dict[str, sa.RowMapping]:
    """The runs' own columns, with the host of their attempt."""
    query = sa.select(runs, attempts.c.host).outerjoin_from(runs, attempts, _IS_CURRENT)
    found = await connection.execute(query.where(runs.c.id.in_(run_ids)))
    return {row["id"]: row for row in found.mappings()}


async def _arrivals(connection: AsyncConnection, run_ids: Collection[str]) -> dict[str, float]:
    """When each run's newest steps of rank 0 arrived; one index lookup in the frames per run."""
    newest = (
        sa.select(frames.c.received_at)
        .where(
            frames.c.run_id == runs.c.id,
            frames.c.attempt == SPEAKING_ATTEMPT,
            frames.c.rank == 0,
            frames.c.num_steps > 0,
        )
        .order_by(frames.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(runs.c.id, newest.label("at")).where(runs.c.id.in_(run_ids))
    return {row.id: row.at for row in await connection.execute(query) if row.at is not None}


def _row(row: sa.RowMapping, counts: sa.RowMapping, arrived_at: float | None) -> FleetRow:
    config = msgspec.json.decode(row["config"], type=dict[str, object])
    host = {} if row["host"] is None else msgspec.json.decode(row["host"], type=dict[str, object])
    hostname = host.get("hostname")
    return FleetRow(
        id=RunId(row["id"]),
        name=row["name"],
        project=row["project"],
        run_group=row["run_group"],
        owner=owner_of(config, host),
        host=hostname[:TEXT_LIMIT] if isinstance(hostname, str) else None,
        state=RunState(row["state"]),
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        attempt=row["current_attempt"],
        last_step=row["last_step"],
        last_step_at=arrived_at,
        num_critical=counts["num_critical"],
        num_warning=counts["num_warning"],
        num_info=counts["num_info"],
        firing_since=counts["firing_since"],
        num_critical_left=counts["num_critical_left"],
        num_warning_left=counts["num_warning_left"],
    )
