"""Rule files that are given to a command, and the built-in pack by its name."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import typer

from runwatch.errors import Fault, RuleError
from runwatch_server.cli.output import OurConsole
from runwatch_server.rules.documents import located, parse_yaml
from runwatch_server.rules.own_names import PROTECTED_NAMES
from runwatch_server.rules.pack import FiledRule, split_file

BUILTIN: Final = "builtin"
"""Given instead of a file: the built-in rules."""


def read_rule_text(name: str) -> str:
    """The text of a rule file, or of the built-in pack. Raises RuleError."""
    if name == BUILTIN:
        return (files("runwatch_server.rules") / "builtin.yaml").read_text("utf-8")
    return text_of(Path(name))


def text_of(file: Path) -> str:
    """Raises RuleError."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        message = f"found invalid UTF-8 at byte {error.start}, wanted text"
        raise RuleError([Fault("file", message)]) from error
    except OSError as error:
        raise RuleError([Fault("file", f"cannot be read: {error.strerror}")]) from error


def read_rules(name: str) -> tuple[FiledRule, ...]:
    """The rules of a file or of the pack; any faults are printed and end the command."""
    try:
        return load_rules(name)
    except RuleError as error:
        refuse(name, error.faults)
        raise typer.Exit(1) from error


def load_rules(name: str) -> tuple[FiledRule, ...]:
    """The same, but raises RuleError, whose faults name their lines."""
    document, lines = parse_yaml(read_rule_text(name))
    try:
        filed_rules = split_file(document)
    except RuleError as error:
        raise located(error, lines) from error
    taken = [filed.rule.name for filed in filed_rules if filed.rule.name in PROTECTED_NAMES]
    if taken:
        wanted = "the service itself judges, wanted another name"
        raise RuleError([Fault("alert", f"found {name}, which {wanted}") for name in taken])
    return filed_rules


def refuse(name: str, faults: Sequence[Fault]) -> None:
    """Prints all faults of a file."""
    console = OurConsole(stderr=True)
    for fault in faults:
        console.print(f"{name}: {fault}", highlight=False, soft_wrap=True, markup=False)
