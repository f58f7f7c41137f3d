"""`runwatch runs`: lists runs."""

from typing import Annotated

import msgspec
import typer

from runwatch.vocabulary import RunState
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, print_facts
from runwatch_server.cli.tables import print_list


class _Run(msgspec.Struct, frozen=True):
    id: str
    name: str
    project: str
    state: str
    policy: str
    last_step: int | None
    created_at: str


class _Runs(msgspec.Struct, frozen=True):
    runs: list[_Run]


def runs(
    name: Annotated[str | None, typer.Option(help="Only those with this name.")] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show the newest runs."""
    asked = {"name": name, "project": project, "state": state, "limit": limit}
    wanted = {name: value for name, value in asked.items() if value is not None}
    with open_client(url, token) as client:
        found = client.request(_Runs, "GET", "/runs", params=wanted)
    if as_json:
        print_facts(found.document)
        return
    print_list(_Run.__struct_fields__, map(msgspec.structs.astuple, found.facts.runs))
