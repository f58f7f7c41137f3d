"""docs/reference/commands.md: every command with its arguments, options and exit codes."""

from collections.abc import Iterator
from typing import Any

import typer.main
from tests.house.reference.docstrings import one_line, table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from runwatch_hooks import sync
from runwatch_server.cli.app import app
from runwatch_server.cli.lazy import LazyCommand

HEAD = """# Commands

Made from the code by `make docs`. `runwatch COMMAND --help` says the same;
`runwatch --install-completion` sets up completion in your shell. `NO_COLOR=1` switches colours off.

| exit code | what it means |
| --- | --- |
| 0 | done |
| 1 | done, and a fault was found: in a rule, a file, a check, or the run that was followed |
| 2 | not done: wrong use, nothing of that name, no answer, a missing scope, no service part |
| 3 | `runwatch sync`: everything is stored except what was damaged or refused |
| 126, 127, 128 + n | `runwatch run`: its command cannot run, does not exist, ended by signal n |
| 130 | ended by Ctrl-C |

"""


def rendered() -> str:
    return HEAD + "\n".join(_section(name, command) for name, command in commands())


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """All that can be called, by the words after `runwatch`."""
    yield from _below(typer.main.get_command(app), "")


def _below(command: object, words: str) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, LazyCommand):
        yield from _below(command.real, words)
    elif isinstance(command, TyperGroup):
        for name, one in sorted(command.commands.items()):
            yield from _below(one, f"{words} {name}".strip())
    else:
        assert isinstance(command, TyperCommand)
        yield words, command


def options_of(command: TyperCommand) -> set[str]:
    return {text for one in command.params for text in (*one.opts, *one.secondary_opts)}


def _section(name: str, command: TyperCommand) -> str:
    paragraphs = [one_line(text) for text in (command.help or "").split("\n\n")]
    rows = [_row(one) for one in command.params if one.name != "help"]
    said = [table(["argument or option", "default", "what it says"], rows)] if rows else []
    if name == "sync":  # hands its arguments on
        said = [f"```text\n{(sync.__doc__ or '').strip()}\n```"]
    return "\n\n".join([f"## runwatch {name}", *paragraphs, *said]) + "\n"


def _row(parameter: Any) -> list[str]:
    assert isinstance(parameter, TyperOption | TyperArgument)
    if isinstance(parameter, TyperOption):
        shown = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    else:
        shown = f"`{parameter.metavar or (parameter.name or '').upper()}`"
    variable = f" (`{parameter.envvar}`)" if parameter.envvar else ""
    default = parameter.default
    is_worth = isinstance(default, str | int | float) and default not in ("", False)
    help_text = one_line(parameter.help or "")
    return [shown + variable, f"`{default}`" if is_worth else "", help_text]
