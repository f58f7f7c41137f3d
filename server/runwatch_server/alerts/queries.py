"""All queries of the table of alerts."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.rules import Transition
from runwatch.vocabulary import AlertId, RunId, Severity
from runwatch_server.alerts.records import (
    OPEN_STATES,
    AlertFilter,
    AlertRecord,
    Facts,
    Recovery,
    Resolution,
)
from runwatch_server.alerts.tables import alert_events, alerts
from runwatch_server.rules.own_names import OUTLAST_RUNS

# Built once: they run with every batch or every few seconds, and building takes longer.
_WATCHED: Final = sa.select(alerts).where(
    alerts.c.run_id == bindparam("of_run"),
    (alerts.c.recovery == "watched")
    | ((alerts.c.recovery == "not_applied") & (alerts.c.state == "firing")),
)
IS_OPEN: Final = alerts.c.state.in_([state.value for state in OPEN_STATES])
"""Is true of pending, firing and recovering alerts."""
_RUNS_TO_END: Final = (
    sa.select(alerts.c.run_id).where(IS_OPEN, alerts.c.rule.not_in(OUTLAST_RUNS)).distinct()
)
_IS_HEARD_OF: Final = sa.and_(IS_OPEN, alerts.c.inhibited_by.is_(None), ~alerts.c.shadow)
_COUNT_OPEN: Final = (
    sa.select(alerts.c.state, alerts.c.severity, sa.func.count())
    .where(_IS_HEARD_OF)
    .group_by(alerts.c.state, alerts.c.severity)
)


async def insert_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    await connection.execute(sa.insert(alerts).values(**_columns(record)))


async def update_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    """Store an alert's current state. The caller appends the event that says why."""
    await connection.execute(
        sa.update(alerts)
        .where(alerts.c.run_id == record.run_id, alerts.c.id == record.id)
        .values(**_columns(record))
    )


async def delete_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    """Delete an alert that cleared before it fired: nobody was notified of it."""
    for table, column in ((alerts, alerts.c.id), (alert_events, alert_events.c.alert_id)):
        await connection.execute(
            sa.delete(table).where(table.c.run_id == record.run_id, column == record.id)
        )


async def find_alert(connection: AsyncConnection, alert_id: AlertId) -> AlertRecord | None:
    found = await connection.execute(sa.select(alerts).where(alerts.c.id == alert_id))
    row = found.mappings().first()
    return None if row is None else _record(row)


async def find_alerts(
    connection: AsyncConnection, alert_ids: Collection[AlertId]
) -> dict[AlertId, AlertRecord]:
    found = await connection.execute(sa.select(alerts).where(alerts.c.id.in_(alert_ids)))
    return {row["id"]: _record(row) for row in found.mappings()}


async def find_episodes(
    connection: AsyncConnection, run_id: RunId, episodes: Collection[str]
) -> dict[str, AlertRecord]:
    found = await connection.execute(
        sa.select(alerts).where(alerts.c.run_id == run_id, alerts.c.episode.in_(episodes))
    )
    return {row["episode"]: _record(row) for row in found.mappings()}


async def list_alerts(
    connection: AsyncConnection, wanted: AlertFilter, *, limit: int | None = None
) -> list[AlertRecord]:
    """Alerts, newest first."""
    query = sa.select(alerts).order_by(alerts.c.id.desc()).limit(limit)
    found = await connection.execute(query.where(*_conditions(wanted)))
    return [_record(row) for row in found.mappings()]


async def list_open(connection: AsyncConnection, run_id: RunId) -> list[AlertRecord]:
    """The pending, firing and recovering alerts of a run, oldest first."""
    found = await connection.execute(
        sa.select(alerts).where(alerts.c.run_id == run_id, IS_OPEN).order_by(alerts.c.id)
    )
    return [_record(row) for row in found.mappings()]


async def list_explained_by_ranks(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> list[AlertRecord]:
    """The open alerts of one rank that alerts of their own rule on other ranks explain."""
    found = await connection.execute(
        sa.select(alerts).where(
            alerts.c.run_id == run_id,
            alerts.c.attempt == attempt,
            alerts.c.rank == rank,
            alerts.c.inhibited_by == alerts.c.rule,
            IS_OPEN,
        )
    )
    return [_record(row) for row in found.mappings()]


async def list_watched(connection: AsyncConnection, run_id: RunId) -> list[AlertRecord]:
    """Alerts of a run for which a verdict on recovery is due."""
    found = await connection.execute(_WATCHED, {"of_run": run_id})
    return [_record(row) for row in found.mappings()]


async def list_cured(connection: AsyncConnection, of: AlertRecord) -> list[AlertRecord]:
    """Earlier alerts of the same rule on the same rank from which the run recovered by a
    command."""
    kind = {"run_id": of.run_id, "attempt": of.attempt, "rank": of.rank, "rule": of.rule}
    found = await connection.execute(
        sa.select(alerts).where(
            *(alerts.c[name] == wanted for name, wanted in kind.items()),
            alerts.c.id != of.id,
            alerts.c.recovery == Recovery.RECOVERED.value,
        )
    )
    return [_record(row) for row in found.mappings()]


async def list_notifiable_of_other_ranks(
    connection: AsyncConnection, run_id: RunId, rank: int, of: Transition | AlertRecord
) -> list[AlertRecord]:
    """The alerts of the same rule on other ranks of the attempt that people were notified of and
    that began no later than this one: the open ones, and those of its segment."""
    found = await connection.execute(
        sa.select(alerts).where(
            alerts.c.run_id == run_id,
            alerts.c.rule == of.rule,
            alerts.c.attempt == of.attempt,
            alerts.c.rank != rank,
            alerts.c.firing_step.is_not(None),
            alerts.c.inhibited_by.is_(None),
            alerts.c.onset_step <= of.onset_step,
            IS_OPEN | (alerts.c.segment == of.segment),
        )
    )
    return [_record(row) for row in found.mappings()]


async def list_runs_to_end(connection: AsyncConnection) -> list[RunId]:
    """Runs with open alerts that end with the run: all but the one that says that it failed."""
    found = await connection.execute(_RUNS_TO_END)
    return [RunId(run_id) for (run_id,) in found]


async def count_by_state(connection: AsyncConnection) -> dict[tuple[str, str], int]:
    """Number of open alerts that people are notified of, for each state and severity."""
    found = await connection.execute(_COUNT_OPEN)
    return {(state, severity): count for state, severity, count in found}


async def count_by_run(
    connection: AsyncConnection, run_ids: Collection[RunId]
) -> dict[tuple[RunId, str, str], int]:
    """Number of open alerts of these runs that people are notified of, for each state and
    severity."""
    columns = (alerts.c.run_id, alerts.c.state, alerts.c.severity)
    found = await connection.execute(
        sa.select(*columns, sa.func.count())
        .where(alerts.c.run_id.in_(run_ids), _IS_HEARD_OF)
        .group_by(*columns)
    )
    return {(run_id, state, severity): count for run_id, state, severity, count in found}


async def count_episodes(
    connection: AsyncConnection, run_id: RunId, rule: str, attempt: int
) -> int:
    """Number of alerts of a rule in an attempt."""
    found = await connection.execute(
        sa.select(sa.func.count())
        .select_from(alerts)
        .where(alerts.c.run_id == run_id, alerts.c.rule == rule, alerts.c.attempt == attempt)
    )
    return found.scalar_one()


def _conditions(wanted: AlertFilter) -> list[sa.ColumnElement[bool]]:
    are_open = bool(wanted.states) and all(state in OPEN_STATES for state in wanted.states)
    # Few are open, and found by their state. SQLite prefers an index that gives them in order,
    # though it holds all that the project or the rule ever had.
    conditions = _conditions_of_standing(wanted, are_open=are_open)
    if wanted.projects is not None:
        conditions.append(_text(alerts.c.project, indexed=not are_open).in_(wanted.projects))
    if wanted.run_id is not None:
        conditions.append(alerts.c.run_id == wanted.run_id)
    if wanted.rule is not None:
        conditions.append(_text(alerts.c.rule, indexed=not are_open) == wanted.rule)
    if wanted.before_id is not None:
        conditions.append(alerts.c.id < wanted.before_id)
    return conditions


def _conditions_of_standing(wanted: AlertFilter, *, are_open: bool) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.states:
        # Nearly all are resolved: SQLite would find them by their state and sort them all.
        state = _text(alerts.c.state, indexed=are_open)
        conditions.append(state.in_([state.value for state in wanted.states]))
    if wanted.severities:
        is_in_order = len(wanted.severities) == 1
        severity = _text(alerts.c.severity, indexed=is_in_order and not are_open)
        conditions.append(severity.in_([kind.value for kind in wanted.severities]))
    if wanted.acked is not None:
        acked_at = alerts.c.acked_at
        conditions.append(acked_at.is_not(None) if wanted.acked else acked_at.is_(None))
    if wanted.inhibited is not None:
        conditions.append(alerts.c.inhibited_by.is_not(None) == wanted.inhibited)
    if wanted.shadow is not None:
        conditions.append(alerts.c.shadow == wanted.shadow)
    if wanted.resolution is not None:
        conditions.append(alerts.c.resolution == wanted.resolution.value)
    return conditions


def _text(column: sa.Column[str], *, indexed: bool) -> sa.ColumnElement[str]:
    """The column, or the same text of which SQLite knows no index."""
    return column if indexed else column.concat("")


def _columns(record: AlertRecord) -> dict[str, object]:
    return {
        **{name: getattr(record, name) for name in _NAMES if name not in _ENCODED},
        "severity": record.severity.value,
        "state": record.state.value,
        "recovery": None if record.recovery is None else record.recovery.value,
        "resolution": None if record.resolution is None else record.resolution.value,
        "labels": _to_json(record.labels),
        "facts": _to_json(record.facts),
    }


_NAMES = tuple(column.name for column in alerts.columns)
_ENCODED = ("severity", "state", "recovery", "resolution", "labels", "facts")


def _record(row: sa.RowMapping) -> AlertRecord:
    columns: dict[str, Any] = {
        **row,
        "severity": Severity(row["severity"]),
        "state": AlertState(row["state"]),
        "recovery": None if row["recovery"] is None else Recovery(row["recovery"]),
        "resolution": None if row["resolution"] is None else Resolution(row["resolution"]),
        "labels": msgspec.json.decode(row["labels"], type=dict[str, str]),
        "facts": msgspec.json.decode(row["facts"], type=Facts),
    }
    return AlertRecord(**columns)


def _to_json(document: Facts | Mapping[str, str]) -> str:
    return msgspec.json.encode(document).decode()
