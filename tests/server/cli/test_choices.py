"""A word that a command does not know is refused in our words."""

import pytest
from typer.testing import CliRunner

from runwatch_server.cli.app import app
from runwatch_server.cli.choices import in_our_words


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            "Value error, 'foo' is not one of 'observe', 'ask', 'auto'.",
            "found 'foo', wanted observe, ask or auto",
        ),
        ("'foo' is not one of 'csv'.", "found 'foo', wanted csv"),
        ("Missing argument", "Missing argument"),
    ],
)
def test_only_what_is_about_a_choice_is_said_anew(theirs: str, ours: str) -> None:
    assert in_our_words(theirs) == ours


@pytest.mark.parametrize(
    "command", [["policy", "RUN", "foo"], ["keys", "create", "me", "--scope", "foo"]]
)
def test_a_command_and_one_of_a_group_say_what_was_found_and_wanted(command: list[str]) -> None:
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 2
    assert "found 'foo', wanted " in result.output
    assert "Value error" not in result.output
