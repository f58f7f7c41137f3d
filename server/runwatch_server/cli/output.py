"""What commands print: a sentence for people, or the same facts for programs.

All of it goes through `OurConsole`, so that no text of a run commands the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, cast

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runwatch.terminal_text import encodable, readable, readable_json

AsJson = Annotated[bool, typer.Option("--json", help="For programs: one line of JSON.")]


class OurConsole(Console):
    """Rich's console; what would command a terminal and is not rich's own is printed as `?`."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, Text):  # before it is measured and wrapped
            renderable = renderable.copy()
            renderable.plain = readable(renderable.plain)
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(readable(segment.text), segment.style)


def say(text: str) -> None:
    """One sentence or more, as it is: no markup, no colours, no lines broken."""
    OurConsole().print(text, highlight=False, soft_wrap=True, markup=False)


def say_facts(facts: object) -> None:
    """Values of JSON, or structs that become them, in one line."""
    say(readable_json(msgspec.json.encode(_encodable(msgspec.to_builtins(facts))).decode()))


def _encodable(facts: object) -> object:
    """The same where each text can be told: a path that was typed may hold any bytes."""
    match facts:
        case str():
            return encodable(facts)
        case dict():
            items = cast(Mapping[str, object], facts).items()
            return {name: _encodable(value) for name, value in items}
        case list() | tuple():
            return [_encodable(value) for value in cast(Sequence[object], facts)]
        case _:
            return facts


def say_either(text: str, facts: object, *, as_json: bool) -> None:
    if as_json:
        say_facts(facts)
    else:
        say(text)
