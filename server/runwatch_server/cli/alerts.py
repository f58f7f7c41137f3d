"""`runwatch alerts`: what is wrong, and `runwatch signal`: a hand on a run."""

from enum import StrEnum
from typing import Annotated

import typer

from runwatch.alerts import AlertState
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, say_either, say_facts
from runwatch_server.cli.run_names import Run, find_run_id
from runwatch_server.cli.tables import print_table


class Signal(StrEnum):
    """What a run can be told."""

    CHECKPOINT = "checkpoint"
    DETAIL = "detail"
    LOWER_LR = "lower-lr"
    ROLLBACK = "rollback"
    STOP = "stop"


def alerts(
    run: Annotated[
        str | None, typer.Option(help="Only of this run: its id, or its name, then the newest.")
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
    columns = ("id", "run_id", "rule", "severity", "state", "firing_step", "summary")
    shown = ({**alert, "state": _state(alert)} for alert in found["alerts"])
    print_table(columns, ([alert[c] for c in columns] for alert in shown))


def _state(alert: dict[str, str | None]) -> str:
    """With why it was closed (only `recovered` means that the run is well again), and with the
    alert that explains it."""
    why, cause = alert["resolution"], alert["inhibited_by"]
    state = str(alert["state"]) if why is None else f"{alert['state']}: {why}"
    return state if cause is None else f"{state} (with {cause})"


def signal(
    run: Run,
    what: Annotated[Signal, typer.Argument(help="What it is to do.")],
    scale: Annotated[
        float | None, typer.Option(min=0, help="lower-lr: times what the schedule says.")
    ] = None,
    to_step: Annotated[
        int | None, typer.Option(help="rollback: to the state after this step.")
    ] = None,
    before_step: Annotated[
        int | None, typer.Option(help="rollback: to the newest good state before this step.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="detail: so many steps with histograms and activations.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Stands in the audit.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Give a run a command; the trainer applies it at its next step boundary."""
    arguments = {"scale": scale, "to_step": to_step, "before_step": before_step, "steps": steps}
    if what is Signal.LOWER_LR and scale is None:
        raise typer.BadParameter("wanted one for lower-lr, such as 0.5", param_hint="'--scale'")
    action: dict[str, object] = {"kind": what.replace("-", "_")}
    action |= {name: value for name, value in arguments.items() if value is not None}
    with open_client(url, token) as client:
        body = {"action": action, "reason": reason}
        path = f"/runs/{find_run_id(client, run)}/commands"
        command = client.request("POST", path, json=body).json()
    say_either(f"{command['id']} is {command['state']}.", command, as_json=as_json)
