"""`runwatch policy`, `approve`, `cancel`: how far rules may go, and a person's word on it."""

from typing import Annotated

import typer

from runwatch.vocabulary import PolicyMode
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, say_either
from runwatch_server.cli.run_names import Run, find_run_id

CommandId = Annotated[str, typer.Argument(help="Id of the command.")]


def policy(
    run: Run,
    mode: Annotated[PolicyMode, typer.Argument(help="observe: tell. ask: wait. auto: act.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Say how far rules may act on a run; the trainer's allow-list still has the last word."""
    with open_client(url, token) as client:
        path = f"/runs/{find_run_id(client, run)}"
        changed = client.request("PATCH", path, json={"policy": mode}).json()
    said = f"{changed['id']} is under the policy {changed['policy']}."
    say_either(said, changed, as_json=as_json)


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
    say_either(f"{changed['id']} is {changed['state']}.", changed, as_json=as_json)
