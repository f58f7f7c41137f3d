"""Queries of notices about recurring problems, and about ends that wait."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import AlertId, RunId, RunState
from runwatch_server.alerts.records import AlertRecord, Resolution
from runwatch_server.alerts.tables import alerts, evaluations
from runwatch_server.notify.records import TimeBefore
from runwatch_server.notify.tables import IS_SETTLING, notices
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import frames

_OF_ALERT = (alerts.c.run_id == notices.c.run_id) & (alerts.c.id == notices.c.alert_id)
_ENDED = [state.value for state in RunState if state.is_ended or state is RunState.LOST]


async def find_before(
    connection: AsyncConnection, alert: AlertRecord, *, layer_group: str
) -> TimeBefore | None:
    """The last alert of the same kind in this attempt that people were notified of and that
    recovered: one that Alertmanager would take for the same alert, on the same rank."""
    kind = {"attempt": alert.attempt, "rank": alert.rank, "rule": alert.rule}
    found = await connection.execute(
        sa.select(notices.c.alert_id, notices.c.times, alerts.c.resolved_step)
        .join_from(notices, alerts, _OF_ALERT)
        .where(
            notices.c.run_id == alert.run_id,
            notices.c.alert_id != alert.id,
            notices.c.layer_group == layer_group,
            *(alerts.c[name] == wanted for name, wanted in kind.items()),
            alerts.c.severity == alert.severity.value,
            alerts.c.resolution == Resolution.RECOVERED.value,
        )
        .order_by(notices.c.fired_at.desc(), notices.c.alert_id.desc())
        .limit(1)
    )
    row = found.first()
    if row is None or row.resolved_step is None:
        return None
    return TimeBefore(AlertId(row.alert_id), row.times or 1, row.resolved_step)


async def take_over(connection: AsyncConnection, run_id: RunId, before: TimeBefore) -> bool:
    """Cancel the waiting end of the earlier occurrence, which now goes on. Returns whether it was
    waiting: an end that is already being sent closes the incident, and the next occurrence needs a
    new one."""
    done = await connection.execute(
        sa.update(notices)
        .where(notices.c.run_id == run_id, notices.c.alert_id == before.alert_id, IS_SETTLING)
        .values(settles_step=None)
    )
    return done.rowcount == 1


async def list_settled(connection: AsyncConnection, *, before: float) -> dict[RunId, list[AlertId]]:
    """Alerts of each run whose ends need not wait any longer: their steps were judged or will not
    come, or they have waited since before a time."""
    found = await connection.execute(
        sa.select(notices.c.run_id, notices.c.alert_id)
        .join_from(notices, alerts, _OF_ALERT)
        .join(runs, runs.c.id == notices.c.run_id)
        .outerjoin(evaluations, _of_stream(evaluations))
        .outerjoin(frames, _of_stream(frames) & (frames.c.seq == evaluations.c.evaluated_seq))
        .where(
            IS_SETTLING,
            (frames.c.first_step + frames.c.num_steps > notices.c.settles_step)
            | (notices.c.resolved_at <= before)
            | runs.c.state.in_(_ENDED)
            | (alerts.c.attempt < runs.c.current_attempt),
        )
    )
    settled: dict[RunId, list[AlertId]] = {}
    for run_id, alert_id in found:
        settled.setdefault(RunId(run_id), []).append(AlertId(alert_id))
    return settled


async def settle(
    connection: AsyncConnection, run_id: RunId, alert_ids: Collection[AlertId], *, at: float
) -> None:
    """Release the ends of alerts, except of those that came back meanwhile."""
    await connection.execute(
        sa.update(notices)
        .where(notices.c.run_id == run_id, notices.c.alert_id.in_(alert_ids), IS_SETTLING)
        .values(settles_step=None, resolved_at=at)
    )


def _of_stream(table: sa.Table) -> sa.ColumnElement[bool]:
    """The rows of the stream that an alert was judged from."""
    columns = ("run_id", "attempt", "rank")
    return sa.and_(*(table.c[name] == alerts.c[name] for name in columns))
