"""`runwatch signal`, `policy`, `approve`, `cancel`: people's commands to a run, and its policy."""

from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from runwatch.vocabulary import PolicyMode
from runwatch_server.cli.answers import Answer
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, in_path, open_client
from runwatch_server.cli.output import AsJson, print_either
from runwatch_server.cli.run_names import Run, find_run_id

CommandId = Annotated[str, typer.Argument(help="ID of the command.")]


class _Command(msgspec.Struct, frozen=True):
    id: str
    state: str


class _Run(msgspec.Struct, frozen=True):
    id: str
    policy: str


class Signal(StrEnum):
    """The commands that a person can give."""

    CHECKPOINT = "checkpoint"
    DETAIL = "detail"
    LOWER_LR = "lower-lr"
    ROLLBACK = "rollback"
    STOP = "stop"


def signal(
    run: Run,
    what: Annotated[Signal, typer.Argument(help="The command.")],
    scale: Annotated[
        float | None, typer.Option(min=0, help="lower-lr: factor on the schedule's learning rate.")
    ] = None,
    to_step: Annotated[
        int | None, typer.Option(help="rollback: go back to the state after this step.")
    ] = None,
    before_step: Annotated[
        int | None,
        typer.Option(help="rollback: go back to the newest good state before this step."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="detail: number of steps with histograms and activations.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; recorded in the audit.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Give a run a command; the trainer applies it at its next step boundary."""
    arguments = {"scale": scale, "to_step": to_step, "before_step": before_step, "steps": steps}
    if what is Signal.LOWER_LR and scale is None:
        raise typer.BadParameter("wanted one for lower-lr, such as 0.5", param_hint="'--scale'")
    action: dict[str, object] = {"kind": what.replace("-", "_")}
    action |= {name: value for name, value in arguments.items() if value is not None}
    with open_client(url, token) as client:
        body = {"action": action, "reason": reason}
        path = f"/runs/{find_run_id(client, run)}/commands"
        command = client.request(_Command, "POST", path, json=body)
    _print_state(command, as_json=as_json)


def policy(
    run: Run,
    mode: Annotated[
        PolicyMode,
        typer.Argument(help="observe: rules only propose; ask: a person approves; auto: they act."),
    ],
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Set how far rules may act on a run; the trainer's allow-list still has the last word."""
    with open_client(url, token) as client:
        path = f"/runs/{find_run_id(client, run)}"
        changed = client.request(_Run, "PATCH", path, json={"policy": mode})
    said = f"{changed.facts.id} is under the policy {changed.facts.policy}."
    print_either(said, changed.document, as_json=as_json)


def approve(
    command: CommandId, url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False
) -> None:
    """Approve a command that a rule proposed, so that it goes to the trainer."""
    _decide(command, "approve", url, token, as_json)


def cancel(
    command: CommandId, url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False
) -> None:
    """Cancel a command that no trainer has accepted yet, or reject a proposal."""
    _decide(command, "cancel", url, token, as_json)


def _decide(command: str, verb: str, url: str, token: str, as_json: bool) -> None:
    with open_client(url, token) as client:
        changed = client.request(_Command, "POST", f"/commands/{in_path(command)}/{verb}")
    _print_state(changed, as_json=as_json)


def _print_state(command: Answer[_Command], *, as_json: bool) -> None:
    said = f"{command.facts.id} is {command.facts.state}."
    print_either(said, command.document, as_json=as_json)
