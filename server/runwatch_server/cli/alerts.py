"""`runwatch alerts`: what is wrong, and `runwatch signal`: a hand on a run."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from runwatch.alerts import AlertState
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.tables import print_table


class Signal(StrEnum):
    """What a run can be told."""

    CHECKPOINT = "checkpoint"
    LOWER_LR = "lower-lr"
    ROLLBACK = "rollback"
    STOP = "stop"


def alerts(
    run: Annotated[str | None, typer.Option(help="Only of this run.")] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    state: Annotated[list[AlertState] | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show the newest alerts."""
    asked = {"run_id": run, "project": project, "state": state, "limit": limit}
    wanted = {name: value for name, value in asked.items() if value}
    with open_client(url, token) as client:
        found = client.request("GET", "/alerts", params=wanted).json()
    if as_json:
        Console().print(json.dumps(found), highlight=False, soft_wrap=True, markup=False)
        return
    columns = ("id", "run_id", "rule", "severity", "state", "firing_step", "summary")
    print_table(columns, ([alert[c] for c in columns] for alert in found["alerts"]))


def signal(
    run: Annotated[str, typer.Argument(help="Id of the run.")],
    what: Annotated[Signal, typer.Argument(help="What it is to do.")],
    scale: Annotated[
        float | None, typer.Option(help="lower-lr: times what the schedule says.")
    ] = None,
    to_step: Annotated[
        int | None, typer.Option(help="rollback: to the state after this step.")
    ] = None,
    before_step: Annotated[
        int | None, typer.Option(help="rollback: to the newest good state before this step.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Stands in the audit.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Give a run a command; the trainer applies it at its next step boundary."""
    arguments = {"scale": scale, "to_step": to_step, "before_step": before_step}
    if what is Signal.LOWER_LR and scale is None:
        raise typer.BadParameter("wanted one for lower-lr, such as 0.5", param_hint="'--scale'")
    action: dict[str, object] = {"kind": what.replace("-", "_")}
    action |= {name: value for name, value in arguments.items() if value is not None}
    with open_client(url, token) as client:
        body = {"action": action, "reason": reason}
        command = client.request("POST", f"/runs/{run}/commands", json=body).json()
    text = json.dumps(command) if as_json else f"{command['id']} is {command['state']}."
    Console().print(text, highlight=False, soft_wrap=True, markup=False)
