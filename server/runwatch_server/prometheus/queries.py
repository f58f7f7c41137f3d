"""The open alerts that people are told of, including pending ones."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.alerts.queries import list_alerts
from runwatch_server.alerts.records import OPEN_STATES, AlertFilter, AlertRecord
from runwatch_server.notify.cases import Case, layer_group
from runwatch_server.notify.notice_queries import find_cases, with_commands
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.runs.queries import find_runs


async def list_open_cases(
    connection: AsyncConnection, *, project: str | None, limit: int
) -> Sequence[Case]:
    """Newest first; without alerts that another explains or whose rule is on trial."""
    wanted = AlertFilter(
        projects=None if project is None else (project,),
        states=OPEN_STATES,
        inhibited=False,
        shadow=False,
    )
    found = await list_alerts(connection, wanted, limit=limit)
    tasks = PerRunTasks("showing it to Prometheus")
    told = await find_cases(connection, tasks, [alert.id for alert in found])
    runs = await find_runs(connection, {alert.run_id for alert in found})
    names = {run.id: run.name for run in runs}
    cases = [
        told.get(alert.id) or _unsent_case(alert, names[alert.run_id])
        for alert in found
        if alert.run_id in names
    ]
    return await with_commands(connection, cases)


def _unsent_case(alert: AlertRecord, run_name: str) -> Case:
    """The case of an alert that nobody has been told of yet."""
    return Case(
        alert=alert,
        run_name=run_name,
        layer_group=layer_group(alert.facts.first_layer),
        fired_at=alert.onset_at,
        resolved_at=None,
        commands=(),
    )
