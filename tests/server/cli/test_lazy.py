"""Commands are listed without reading what they are made of."""

import os
import subprocess
import sys

import pytest
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

from runwatch_server.cli.app import app
from runwatch_server.cli.lazy import LazyCommand

HEAVY = ("alembic", "fastapi", "httpx", "numpy", "plotly", "sqlalchemy", "uvicorn")


def listed() -> list[LazyCommand]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = list(group.commands.values())
    commands = [one for one in found if isinstance(one, LazyCommand)]
    assert len(commands) == len(found) > 15
    return commands


@pytest.mark.parametrize("command", listed(), ids=lambda command: command.name)
def test_the_list_says_what_the_command_says_of_itself(command: LazyCommand) -> None:
    said = " ".join((command.real.help or "").split("\n\n")[0].split())

    assert said.startswith((command.help or "?").rstrip("."))


@pytest.mark.parametrize("command", listed(), ids=lambda command: command.name)
def test_a_paragraph_of_help_is_broken_by_the_terminal_alone(command: LazyCommand) -> None:
    below = list(getattr(command.real, "commands", {}).values())
    paragraphs = [
        paragraph for one in (command.real, *below) for paragraph in (one.help or "").split("\n\n")
    ]

    assert [one for one in paragraphs if "\n" in one] == []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_a_list_of_commands_reads_none_of_them(arguments: list[str]) -> None:
    program = (
        "import sys; from runwatch_server.cli import main\n"
        "try: main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [("runwatch ba", "backtest"), ("runwatch rules te", "test"), ("runwatch runs --pro", "--proj")],
)
def test_a_shell_completes_commands_their_commands_and_options(words: str, wanted: str) -> None:
    variables = {
        "_RUNWATCH_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = "import sys; sys.argv[0] = 'runwatch'; from runwatch_server.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert wanted in done.stdout, done.stderr


def test_a_wrong_word_is_answered_with_the_near_one() -> None:
    result = CliRunner().invoke(app, ["backtset"])

    assert result.exit_code == 2
    assert "backtest" in result.output
