"""Finds runs by their ids or names."""

import re
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec
import typer

from runwatch.ulids import is_ulid
from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import Client

Run = Annotated[
    str, typer.Argument(help="Id of the run or its beginning, or its name for the newest one.")
]

_MOST: Final = 100
_BEGINNING: Final = re.compile("[0-9A-HJKMNP-TV-Z]{6,26}", re.IGNORECASE)


class _Run(msgspec.Struct, frozen=True):
    id: Id


class _Runs(msgspec.Struct, frozen=True):
    runs: list[_Run]


def find_run_id(client: Client, text: str) -> str:
    """The run with this id, the newest with this name, or the one whose id begins so; ends the
    command if there is none."""
    if is_ulid(text):
        return text
    asked = {"name": text, "limit": 1}
    found = client.request(_Runs, "GET", "/runs", params=asked).facts.runs
    if found:
        return found[0].id
    begun = _find_begun(client, text) if is_beginning(text) else []
    if len(begun) > 1:
        ids = ", ".join(run.id for run in begun)
        return client.fail(f"found {len(begun)} runs whose ids begin with {text!r}: {ids}")
    if begun:
        return begun[0].id
    return client.fail(f"found no run with the id or name {text!r}; `runwatch runs` lists them")


def is_beginning(text: str) -> bool:
    """Whether it may be a run's id or the beginning of one."""
    return _BEGINNING.fullmatch(text) is not None


def search_path(text: str) -> str:
    """Where the service lists the newest runs that have a text somewhere, as in their ids."""
    return f"/fleet?{urlencode({'search': text, 'order': 'newest', 'limit': _MOST})}"


def _find_begun(client: Client, text: str) -> list[_Run]:
    found = client.request(_Runs, "GET", search_path(text)).facts.runs
    return [run for run in found if run.id.startswith(text.upper())]
