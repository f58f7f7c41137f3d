"""`runwatch rules`: checked before they judge, then applied."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from runwatch.errors import Fault, RuleError
from runwatch_server.cli.client import DEFAULT_URL, Client, Token, Url, open_client
from runwatch_server.cli.tables import print_table
from runwatch_server.rules.documents import located, parse_yaml
from runwatch_server.rules.pack import FiledRule, split_file

app = typer.Typer(help="Rules: check a file, list, apply.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A rule file in YAML.", exists=True, dir_okay=False)]


@app.command()
def check(file: File) -> None:
    """Say all that is wrong with a file; needs no service."""
    filed_rules = _read(file)
    _say(f"{file}: in order; rules found: {len(filed_rules)}")


@app.command("list")
def list_rules(
    project: Annotated[str | None, typer.Option(help="Those that hold for this project.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show the built-in rules and people's own."""
    with open_client(url, token) as client:
        params = {} if project is None else {"project": project}
        found = client.request("GET", "/rules", params=params).json()
    if as_json:
        Console().print(json.dumps(found), highlight=False, soft_wrap=True, markup=False)
        return
    columns = ("name", "source", "project", "version", "enabled", "id")
    print_table(columns, ([rule[c] for c in columns] for rule in found["rules"]))


@app.command("apply")
def apply_file(
    file: File,
    project: Annotated[str | None, typer.Option(help="For this project only.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Put a file's rules in force: new ones are added, known ones replaced."""
    filed_rules = _read(file)
    with open_client(url, token) as client:
        found = client.request("GET", "/rules").json()["rules"]
        known = {
            rule["name"]: rule
            for rule in found
            if rule["source"] == "user" and rule["project"] == project
        }
        for filed in filed_rules:
            _apply(client, filed, known.get(filed.rule.name), project)
    _say(f"In force: {', '.join(filed.rule.name for filed in filed_rules)}")


def _apply(
    client: Client, filed: FiledRule, known: dict[str, object] | None, project: str | None
) -> None:
    if known is None:
        params = {} if project is None else {"project": project}
        client.request("POST", "/rules", json=filed.file, params=params)
    elif known["document"] != filed.file:
        headers = {"If-Match": f'"{known["version"]}"'}
        client.request("PUT", f"/rules/{known['id']}", json=filed.file, headers=headers)


def _read(file: Path) -> tuple[FiledRule, ...]:
    """The rules of a file; ends the command with all faults where there are any."""
    try:
        document, lines = parse_yaml(_text_of(file))
        try:
            return split_file(document)
        except RuleError as error:
            raise located(error, lines) from error
    except RuleError as error:
        console = Console(stderr=True)
        for fault in error.faults:
            console.print(f"{file}: {fault}", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(1) from error


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        message = f"found no UTF-8 at byte {error.start}, wanted a text"
        raise RuleError([Fault("file", message)]) from error
    except OSError as error:
        raise RuleError([Fault("file", f"cannot be read: {error.strerror}")]) from error


def _say(text: str) -> None:
    Console().print(text, highlight=False, soft_wrap=True, markup=False)
