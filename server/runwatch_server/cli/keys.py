"""`runwatch keys`: creates, lists and revokes API keys."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from runwatch_server.auth.keys import KeyScope
from runwatch_server.cli.answers import Answer
from runwatch_server.cli.client import DEFAULT_URL, Client, Token, Url, in_path, open_client
from runwatch_server.cli.output import AsJson, print_either, print_facts
from runwatch_server.cli.tables import print_table

_MOST_DAYS: Final = 36_500
"""A century; the calendar ends not long after."""

app = typer.Typer(
    help="Manage API keys; needs the scope admin.", no_args_is_help=True, add_completion=False
)


class _Created(msgspec.Struct, frozen=True):
    key: str


class _Key(msgspec.Struct, frozen=True):
    id: str
    name: str
    scopes: list[str]
    project: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class _Keys(msgspec.Struct, frozen=True):
    keys: list[_Key]
    next_token: str | None = None


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    scope: Annotated[list[KeyScope], typer.Option(help="What it may do; may be repeated.")],
    project: Annotated[str | None, typer.Option(help="Bind it to one project.")] = None,
    days: Annotated[
        float | None, typer.Option(min=0, max=_MOST_DAYS, help="Days until it expires.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Create a key; it is printed only this once."""
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    body = {
        "name": name,
        "scopes": scope,
        "project": project,
        "expires_at": None if expires is None else expires.isoformat(),
    }
    with open_client(url, token) as client:
        created = client.request(_Created, "POST", "/keys", json=body)
    print_either(created.facts.key, created.document, as_json=as_json)


@app.command("list")
def list_keys(
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show all keys, without their secrets."""
    with open_client(url, token) as client:
        pages = list(_pages(client))
    if as_json:
        documents = [document for page in pages for document in page.document["keys"]]
        print_facts({"keys": documents, "next_token": None})
        return
    keys = (
        msgspec.structs.asdict(key) | {"scopes": ", ".join(key.scopes)}
        for page in pages
        for key in page.facts.keys
    )
    print_table(_Key.__struct_fields__, (list(key.values()) for key in keys))


def _pages(client: Client) -> Iterator[Answer[_Keys]]:
    page = client.request(_Keys, "GET", "/keys")
    yield page
    while page.facts.next_token is not None:
        asked = {"next_token": page.facts.next_token}
        page = client.request(_Keys, "GET", "/keys", params=asked)
        yield page


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The 8 letters after runwatch_.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key at once."""
    with open_client(url, token) as client:
        client.order("DELETE", f"/keys/{in_path(key_id)}")
    print_either(f"{key_id} is revoked.", {"id": key_id, "revoked": True}, as_json=as_json)
