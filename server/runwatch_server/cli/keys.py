"""`runwatch keys`: who may use the service."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console

from runwatch_server.auth.keys import KeyScope
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.tables import print_table

app = typer.Typer(help="API keys; needs one with the scope admin.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    scope: Annotated[list[KeyScope], typer.Option(help="What it may do; give it again for more.")],
    project: Annotated[str | None, typer.Option(help="Bind it to one project.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days until it expires.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Make a key; it is printed this once."""
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    body = {
        "name": name,
        "scopes": scope,
        "project": project,
        "expires_at": None if expires is None else expires.isoformat(),
    }
    with open_client(url, token) as client:
        created = client.request("POST", "/keys", json=body).json()
    text = json.dumps(created) if as_json else created["key"]
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


@app.command("list")
def list_keys(
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show all keys, without their secrets."""
    with open_client(url, token) as client:
        found = client.request("GET", "/keys").json()
    if as_json:
        Console().print(json.dumps(found), highlight=False, soft_wrap=True, markup=False)
        return
    columns = ("id", "name", "scopes", "project", "expires_at", "revoked_at", "last_used_at")
    keys = ({**key, "scopes": ", ".join(key["scopes"])} for key in found["keys"])
    print_table(columns, ([key[c] for c in columns] for key in keys))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The 8 letters after runwatch_.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """End a key at once."""
    with open_client(url, token) as client:
        client.request("DELETE", f"/keys/{key_id}")
    Console().print(f"{key_id} is revoked.", highlight=False)
