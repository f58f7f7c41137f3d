"""`runwatch alerts`: lists alerts."""

from typing import Annotated

import msgspec
import typer

from runwatch.alerts import AlertState
from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, print_facts
from runwatch_server.cli.run_names import find_run_id
from runwatch_server.cli.tables import print_table


class _Alert(msgspec.Struct, frozen=True):
    id: str
    run_id: Id
    rank: int
    rule: str
    severity: str
    state: str
    onset_step: int
    summary: str
    resolution: str | None
    inhibited_by: str | None


class _Alerts(msgspec.Struct, frozen=True):
    alerts: list[_Alert]


class _Run(msgspec.Struct, frozen=True):
    name: str


def alerts(
    run: Annotated[
        str | None, typer.Option(help="Only of this run: its id, or its name for the newest one.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    state: Annotated[list[AlertState] | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show the newest alerts."""
    with open_client(url, token) as client:
        run_id = None if run is None else find_run_id(client, run)
        asked = {"run_id": run_id, "project": project, "state": state, "limit": limit}
        wanted = {name: value for name, value in asked.items() if value}
        found = client.request(_Alerts, "GET", "/alerts", params=wanted)
        if as_json:
            print_facts(found.document)
            return
        listed = found.facts.alerts
        names = {
            one: client.request(_Run, "GET", f"/runs/{one}").facts.name
            for one in {alert.run_id for alert in listed}
        }
    columns = ("id", "run", "rank", "rule", "severity", "state", "onset_step", "summary")
    rows = (
        (
            *(alert.id, names[alert.run_id], alert.rank, alert.rule, alert.severity),
            *(_state(alert), alert.onset_step, alert.summary),
        )
        for alert in listed
    )
    print_table(columns, rows)


def _state(alert: _Alert) -> str:
    """The state, with why the alert was closed (only `recovered` means that the run is healthy
    again) and the alert that explains it."""
    why, cause = alert.resolution, alert.inhibited_by
    state = alert.state if why is None else f"{alert.state}: {why}"
    return state if cause is None else f"{state} (with {cause})"
