"""Finds runs by their ids or names."""

from typing import Annotated

import msgspec
import typer

from runwatch.ulids import is_ulid
from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import Client

Run = Annotated[str, typer.Argument(help="Id of the run, or its name for the newest one.")]


class _Run(msgspec.Struct, frozen=True):
    id: Id


class _Runs(msgspec.Struct, frozen=True):
    runs: list[_Run]


def find_run_id(client: Client, text: str) -> str:
    """The run with this id, or the newest with this name; ends the command if there is none."""
    if is_ulid(text):
        return text
    asked = {"name": text, "limit": 1}
    found = client.request(_Runs, "GET", "/runs", params=asked).facts.runs
    if found:
        return found[0].id
    return client.fail(f"found no run with the id or name {text!r}; `runwatch runs` lists them")
