"""Runs by their ids, or by the names that people gave them."""

from typing import Annotated

import typer

from runwatch.ulids import is_ulid
from runwatch_server.cli.client import Client

Run = Annotated[str, typer.Argument(help="Id of the run, or its name: then the newest.")]


def find_run_id(client: Client, text: str) -> str:
    """The run of this id, or the newest of this name; ends the command where there is none."""
    if is_ulid(text):
        return text
    asked = {"search": text, "order": "newest", "limit": 1000}
    found = client.request("GET", "/fleet", params=asked).json()["runs"]
    named = [str(run["id"]) for run in found if run["name"] == text]
    if named:
        return named[0]
    return client.fail(f"found no run with the id or the name {text!r}; `runwatch runs` shows them")
