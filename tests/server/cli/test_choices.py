"""An argument that a command cannot use is refused in our words."""

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
        ("Input should be greater than or equal to 1", "wanted 1 or more"),
        ("Input should be less than or equal to 1000", "wanted 1000 or less"),
        ("Missing argument", "Missing argument"),
    ],
)
def test_only_what_is_about_a_value_is_said_anew(theirs: str, ours: str) -> None:
    assert in_our_words(theirs) == ours


@pytest.mark.parametrize(
    "command", [["policy", "RUN", "foo"], ["keys", "create", "me", "--scope", "foo"]]
)
def test_a_command_and_one_of_a_group_say_what_was_found_and_wanted(command: list[str]) -> None:
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 2
    assert "found 'foo', wanted " in result.output
    assert "Value error" not in result.output


@pytest.mark.parametrize(
    ("limit", "wanted"), [("0", "1 or more"), ("9999", "1000 or less"), ("x", "a whole number")]
)
def test_a_number_that_cannot_be_used_is_told_what_was_wanted(limit: str, wanted: str) -> None:
    result = CliRunner().invoke(app, ["runs", "--limit", limit])

    assert result.exit_code == 2
    assert f"'--limit': wanted {wanted} " in result.output
