"""`runwatch runs`: lists runs."""

from typing import Annotated

import typer

from runwatch.vocabulary import RunState
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, say_facts
from runwatch_server.cli.tables import print_table


def runs(
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show the newest runs."""
    asked = {"project": project, "state": state, "limit": limit}
    wanted = {name: value for name, value in asked.items() if value is not None}
    with open_client(url, token) as client:
        found = client.request("GET", "/runs", params=wanted).json()
    if as_json:
        say_facts(found)
        return
    columns = ("id", "name", "project", "state", "policy", "last_step", "created_at")
    print_table(columns, ([run[c] for c in columns] for run in found["runs"]))
