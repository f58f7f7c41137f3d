"""`runwatch alerts`: lists alerts."""

from typing import Annotated

import typer

from runwatch.alerts import AlertState
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, in_path, open_client
from runwatch_server.cli.output import AsJson, say_facts
from runwatch_server.cli.run_names import find_run_id
from runwatch_server.cli.tables import print_table


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
        found = client.request("GET", "/alerts", params=wanted).json()
        if as_json:
            say_facts(found)
            return
        run_ids = {alert["run_id"] for alert in found["alerts"]}
        names = {
            one: client.request("GET", f"/runs/{in_path(one)}").json()["name"] for one in run_ids
        }
    columns = ("id", "run", "rank", "rule", "severity", "state", "onset_step", "summary")
    shown = (
        {**alert, "run": names[alert["run_id"]], "state": _state(alert)}
        for alert in found["alerts"]
    )
    print_table(columns, ([alert[c] for c in columns] for alert in shown))


def _state(alert: dict[str, str | None]) -> str:
    """The state, with why the alert was closed (only `recovered` means that the run is healthy
    again) and the alert that explains it."""
    why, cause = alert["resolution"], alert["inhibited_by"]
    state = str(alert["state"]) if why is None else f"{alert['state']}: {why}"
    return state if cause is None else f"{state} (with {cause})"
