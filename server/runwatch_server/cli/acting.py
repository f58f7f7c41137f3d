"""`runwatch policy`, `approve`, `cancel`: how far rules may go, and a person's word on it."""

import json
from typing import Annotated

import typer
from rich.console import Console

from runwatch.vocabulary import PolicyMode
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client

CommandId = Annotated[str, typer.Argument(help="Id of the command.")]
AsJson = Annotated[bool, typer.Option("--json")]


def policy(
    run: Annotated[str, typer.Argument(help="Id of the run.")],
    mode: Annotated[PolicyMode, typer.Argument(help="observe: tell. ask: wait. auto: act.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Say how far rules may act on a run; the trainer's allow-list still has the last word."""
    with open_client(url, token) as client:
        changed = client.request("PATCH", f"/runs/{run}", json={"policy": mode}).json()
    _say(f"{changed['id']} is under the policy {changed['policy']}.", changed, as_json)


def approve(
    command: CommandId, url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False
) -> None:
    """Let a command that a rule proposed go to its trainer."""
    _decide(command, "approve", url, token, as_json)


def cancel(
    command: CommandId, url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False
) -> None:
    """Take a command back that no trainer has accepted yet, or turn a proposal down."""
    _decide(command, "cancel", url, token, as_json)


def _decide(command: str, verb: str, url: str, token: str, as_json: bool) -> None:
    with open_client(url, token) as client:
        changed = client.request("POST", f"/commands/{command}/{verb}").json()
    _say(f"{changed['id']} is {changed['state']}.", changed, as_json)


def _say(text: str, facts: object, as_json: bool) -> None:
    said = json.dumps(facts) if as_json else text
    Console().print(said, highlight=False, soft_wrap=True, markup=False)
