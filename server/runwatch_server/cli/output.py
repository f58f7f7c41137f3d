"""What commands print on stdout: a sentence for people, or the same facts for programs."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="For programs: one line of JSON.")]


def say(text: str) -> None:
    """One sentence or more, as it is: no markup, no colours, no lines broken."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def say_facts(facts: object) -> None:
    """Values of JSON, or structs that become them, in one line."""
    say(msgspec.json.encode(facts).decode())


def say_either(text: str, facts: object, *, as_json: bool) -> None:
    if as_json:
        say_facts(facts)
    else:
        say(text)
