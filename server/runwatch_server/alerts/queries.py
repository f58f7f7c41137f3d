"""Every question put to the tables of alerts and of evaluation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.nonfinite import JsonNumber
from runwatch.vocabulary import AlertId, RunId, Severity
from runwatch_server.alerts.tables import alert_events, alerts, evaluations, rule_sets
from runwatch_server.telemetry.tables import events

OPEN_STATES = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)


# Built once: these run with every batch, and building takes longer than running.
_WATCHED: Final = sa.select(alerts).where(
    alerts.c.run_id == bindparam("of_run"), alerts.c.recovery == "watched"
)
_ADVANCE: Final = (
    sa.update(evaluations)
    .where(
        evaluations.c.run_id == bindparam("of_run"),
        evaluations.c.attempt == bindparam("of_attempt"),
        evaluations.c.rank == bindparam("of_rank"),
        evaluations.c.evaluated_seq == bindparam("found"),
    )
    .values(evaluated_seq=bindparam("to_seq"))
)
_ADVANCE_WITH_STATE: Final = _ADVANCE.values(
    state_seq=bindparam("to_state_seq"),
    state=bindparam("to_state"),
    rule_set=bindparam("to_rule_set"),
)


class Recovery(StrEnum):
    """Whether the run recovered after a command that the alert brought about was applied."""

    WATCHED = "watched"
    RECOVERED = "recovered"
    NOT_RECOVERED = "not_recovered"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an alert says, as its last transition had it."""

    value: JsonNumber = None
    first_layer: str | None = None
    worst_layer: str | None = None
    layers: tuple[str, ...] = ()
    num_layers: int = 0
    summary: str = ""
    description: str = ""
    runbook: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """An alert as it is kept."""

    run_id: RunId
    id: AlertId
    project: str
    episode: str
    rule: str
    rule_hash: str
    severity: Severity
    labels: Mapping[str, str]
    state: AlertState
    live: bool
    attempt: int
    segment: int
    rank: int
    onset_step: int
    onset_at: float
    last_step: int
    facts: Facts
    created_at: float
    firing_step: int | None = None
    firing_at: float | None = None
    resolved_step: int | None = None
    resolved_at: float | None = None
    acked_at: float | None = None
    acked_by: str | None = None
    ack_note: str | None = None
    recovery: Recovery | None = None
    acted_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One thing that happened to an alert."""

    number: int
    run_id: RunId
    alert_id: AlertId
    kind: str
    step: int | None
    at: float
    actor: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened to the run itself."""

    step: int | None
    kind: str
    at: float
    source: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How far one stream of frames has been judged."""

    run_id: RunId
    attempt: int
    rank: int
    evaluated_seq: int
    state_seq: int
    state: bytes
    rule_set: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Which alerts are asked for; what is empty does not narrow."""

    projects: Collection[str] | None = None
    run_id: RunId | None = None
    states: Sequence[AlertState] = field(default_factory=lambda: ())
    severities: Sequence[Severity] = field(default_factory=lambda: ())
    rule: str | None = None
    acked: bool | None = None
    before_id: str | None = None


async def insert_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    await connection.execute(sa.insert(alerts).values(**_columns(record)))


async def update_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    """Store an alert as it is now. The caller appends the event that tells why."""
    await connection.execute(
        sa.update(alerts)
        .where(alerts.c.run_id == record.run_id, alerts.c.id == record.id)
        .values(**_columns(record))
    )


async def delete_alert(connection: AsyncConnection, record: AlertRecord) -> None:
    """Forget an alert that cleared before it fired: nobody was told of it."""
    for table, column in ((alerts, alerts.c.id), (alert_events, alert_events.c.alert_id)):
        await connection.execute(
            sa.delete(table).where(table.c.run_id == record.run_id, column == record.id)
        )


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
    await connection.execute(
        sa.insert(alert_events).values(
            run_id=record.run_id,
            alert_id=record.id,
            kind=kind,
            step=step,
            at=at,
            actor=actor,
            detail=_to_json(detail or {}),
        )
    )


async def find_alert(connection: AsyncConnection, alert_id: AlertId) -> AlertRecord | None:
    found = await connection.execute(sa.select(alerts).where(alerts.c.id == alert_id))
    row = found.mappings().first()
    return None if row is None else _record(row)


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
        sa.select(alerts)
        .where(alerts.c.run_id == run_id, alerts.c.state.in_([s.value for s in OPEN_STATES]))
        .order_by(alerts.c.id)
    )
    return [_record(row) for row in found.mappings()]


async def list_watched(connection: AsyncConnection, run_id: RunId) -> list[AlertRecord]:
    """Alerts of a run whose recovery is being watched."""
    found = await connection.execute(_WATCHED, {"of_run": run_id})
    return [_record(row) for row in found.mappings()]


async def list_runs_with_open_alerts(connection: AsyncConnection) -> list[RunId]:
    found = await connection.execute(
        sa.select(alerts.c.run_id)
        .where(alerts.c.state.in_([s.value for s in OPEN_STATES]))
        .distinct()
    )
    return [RunId(run_id) for (run_id,) in found]


async def count_by_state(connection: AsyncConnection) -> dict[tuple[str, str], int]:
    """Number of open alerts for each state and severity."""
    found = await connection.execute(
        sa.select(alerts.c.state, alerts.c.severity, sa.func.count())
        .where(alerts.c.state.in_([s.value for s in OPEN_STATES]))
        .group_by(alerts.c.state, alerts.c.severity)
    )
    return {(state, severity): count for state, severity, count in found}


async def list_events(
    connection: AsyncConnection, run_id: RunId, alert_id: AlertId
) -> list[AlertEvent]:
    found = await connection.execute(
        sa.select(alert_events)
        .where(alert_events.c.run_id == run_id, alert_events.c.alert_id == alert_id)
        .order_by(alert_events.c.number)
    )
    return [_event(row) for row in found.mappings()]


async def list_events_after(
    connection: AsyncConnection, number: int, *, run_id: RunId | None, limit: int
) -> list[AlertEvent]:
    """What happened to alerts since an event, in the order of its writing."""
    wanted = sa.select(alert_events).where(alert_events.c.number > number)
    if run_id is not None:
        wanted = wanted.where(alert_events.c.run_id == run_id)
    found = await connection.execute(wanted.order_by(alert_events.c.number).limit(limit))
    return [_event(row) for row in found.mappings()]


async def last_event_number(connection: AsyncConnection) -> int:
    found = await connection.execute(sa.select(sa.func.max(alert_events.c.number)))
    return found.scalar_one() or 0


async def find_evaluation(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> Evaluation | None:
    found = await connection.execute(
        sa.select(evaluations).where(
            evaluations.c.run_id == run_id,
            evaluations.c.attempt == attempt,
            evaluations.c.rank == rank,
        )
    )
    row = found.mappings().first()
    return None if row is None else Evaluation(**row)


async def insert_evaluation(connection: AsyncConnection, evaluation: Evaluation) -> None:
    await connection.execute(
        sa.insert(evaluations).values(
            run_id=evaluation.run_id,
            attempt=evaluation.attempt,
            rank=evaluation.rank,
            evaluated_seq=evaluation.evaluated_seq,
            state_seq=evaluation.state_seq,
            state=evaluation.state,
            rule_set=evaluation.rule_set,
        )
    )


async def advance_evaluation(
    connection: AsyncConnection,
    before: Evaluation,
    after: Evaluation,
) -> bool:
    """Move a watermark on, unless somebody else has moved it. With its state where that is new."""
    key = {
        "of_run": before.run_id,
        "of_attempt": before.attempt,
        "of_rank": before.rank,
        "found": before.evaluated_seq,
        "to_seq": after.evaluated_seq,
    }
    if after.state_seq == before.state_seq and after.rule_set == before.rule_set:
        done = await connection.execute(_ADVANCE, key)
    else:
        saved = {
            "to_state_seq": after.state_seq,
            "to_state": after.state,
            "to_rule_set": after.rule_set,
        }
        done = await connection.execute(_ADVANCE_WITH_STATE, key | saved)
    return done.rowcount == 1


async def list_run_events(
    connection: AsyncConnection,
    run_id: RunId,
    *,
    attempt: int,
    first_step: int,
    last_step: int,
    limit: int,
) -> list[RunEvent]:
    """What happened to a run between two steps, the newest last."""
    found = await connection.execute(
        sa.select(events)
        .where(
            events.c.run_id == run_id,
            events.c.attempt == attempt,
            events.c.step.between(first_step, last_step),
        )
        .order_by(events.c.step.desc(), events.c.id.desc())
        .limit(limit)
    )
    return [
        RunEvent(
            step=row["step"],
            kind=row["kind"],
            at=row["at"],
            source=row["source"],
            detail=msgspec.json.decode(row["detail"], type=dict[str, object]),
        )
        for row in reversed(found.mappings().all())
    ]


async def count_episodes(
    connection: AsyncConnection, run_id: RunId, rule: str, attempt: int
) -> int:
    """How many alerts of a rule an attempt has had."""
    found = await connection.execute(
        sa.select(sa.func.count())
        .select_from(alerts)
        .where(alerts.c.run_id == run_id, alerts.c.rule == rule, alerts.c.attempt == attempt)
    )
    return found.scalar_one()


async def store_rule_set(
    connection: AsyncConnection, rule_set: str, documents: Sequence[object]
) -> None:
    """Keep the rules of a set, once."""
    known = await connection.execute(
        sa.select(rule_sets.c.hash).where(rule_sets.c.hash == rule_set)
    )
    if known.first() is None:
        await connection.execute(
            sa.insert(rule_sets).values(hash=rule_set, documents=_to_json(documents))
        )


async def find_rule_set(connection: AsyncConnection, rule_set: str) -> list[object]:
    found = await connection.execute(
        sa.select(rule_sets.c.documents).where(rule_sets.c.hash == rule_set)
    )
    return msgspec.json.decode(found.scalar_one(), type=list[object])


def _conditions(wanted: AlertFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.projects is not None:
        conditions.append(alerts.c.project.in_(wanted.projects))
    if wanted.run_id is not None:
        conditions.append(alerts.c.run_id == wanted.run_id)
    if wanted.states:
        conditions.append(alerts.c.state.in_([state.value for state in wanted.states]))
    if wanted.severities:
        conditions.append(alerts.c.severity.in_([kind.value for kind in wanted.severities]))
    if wanted.rule is not None:
        conditions.append(alerts.c.rule == wanted.rule)
    if wanted.acked is not None:
        conditions.append(alerts.c.acked_at.is_not(None) == wanted.acked)
    if wanted.before_id is not None:
        conditions.append(alerts.c.id < wanted.before_id)
    return conditions


def _columns(record: AlertRecord) -> dict[str, object]:
    return {
        **{name: getattr(record, name) for name in _NAMES if name not in _ENCODED},
        "severity": record.severity.value,
        "state": record.state.value,
        "recovery": None if record.recovery is None else record.recovery.value,
        "labels": _to_json(record.labels),
        "facts": _to_json(record.facts),
    }


_NAMES = tuple(column.name for column in alerts.columns)
_ENCODED = ("severity", "state", "recovery", "labels", "facts")


def _record(row: sa.RowMapping) -> AlertRecord:
    columns: dict[str, Any] = {
        **row,
        "severity": Severity(row["severity"]),
        "state": AlertState(row["state"]),
        "recovery": None if row["recovery"] is None else Recovery(row["recovery"]),
        "labels": msgspec.json.decode(row["labels"], type=dict[str, str]),
        "facts": msgspec.json.decode(row["facts"], type=Facts),
    }
    return AlertRecord(**columns)


def _event(row: sa.RowMapping) -> AlertEvent:
    columns: dict[str, Any] = {**row, "detail": msgspec.json.decode(row["detail"])}
    return AlertEvent(**columns)


def _to_json(document: Facts | Mapping[str, object] | Mapping[str, str] | Sequence[object]) -> str:
    return msgspec.json.encode(document).decode()
