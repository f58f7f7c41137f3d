"""`runwatch alerts`: lists alerts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from runwatch.alerts import AlertState
from runwatch.terminal_text import readable_line
from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.live_screen import SEVERITY_STYLES
from runwatch_server.cli.output import AsJson, OurConsole, print_facts
from runwatch_server.cli.run_names import find_run_id
from runwatch_server.cli.tables import is_narrow, print_table, short_ids


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
    outcome: str = ""


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
    console = OurConsole()
    if is_narrow(console):
        for line in _two_lines(listed, names):
            console.print(line, no_wrap=True, overflow="ellipsis")
        return
    columns = ("id", "run", "rank", "rule", "severity", "state", "onset_step", "summary")
    rows = (
        (
            *(alert.id, names[alert.run_id], alert.rank, alert.rule, alert.severity),
            *(_state(alert), alert.onset_step, alert.summary),
        )
        for alert in listed
    )
    print_table(columns, rows, console)


def _two_lines(alerts: Sequence[_Alert], names: Mapping[str, str]) -> Iterator[Text]:
    """Two lines for each alert: what may be cut on a narrow screen stands last."""
    ids = short_ids(alert.id for alert in alerts)
    for alert in alerts:
        rank = f" (rank {alert.rank})" if alert.rank else ""
        style = SEVERITY_STYLES.get(alert.severity, "")
        yield Text.assemble(
            (f"{ids[alert.id]}  ", "dim"),
            (f"{alert.severity:<8}  ", style),
            (f"{alert.rule}{rank}", "bold"),
            readable_line(f"  step {alert.onset_step}  {_state(alert)}  {names[alert.run_id]}"),
        )
        yield Text(f"  {readable_line(alert.summary)}")


def _state(alert: _Alert) -> str:
    """The state, with why the alert was closed (only `recovered` means that the run is healthy
    again) and the alert that explains it."""
    why, cause = alert.resolution, alert.inhibited_by
    state = alert.state if why is None else f"{alert.state}: {why}"
    if alert.outcome:
        state = f"not recovered: {alert.outcome}"
    return state if cause is None else f"{state} (with {cause})"
