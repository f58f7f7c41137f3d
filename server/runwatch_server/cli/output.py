"""What commands print: a sentence for people, or the same facts for programs.

All of it goes through `OurConsole`, so that no text of a run can control the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, cast

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runwatch.terminal_text import encodable, readable, readable_json

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON, for programs.")]


class OurConsole(Console):
    """Rich's console; control characters that are not rich's own are printed as `?`."""

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


def say(console: Console, text: str) -> None:
    """Prints what we have to say between the lines of a job."""
    console.print(f"runwatch: {text}", highlight=False, soft_wrap=True, markup=False)


def print_text(text: str) -> None:
    """Prints text as it is: no markup, no colours, no wrapped lines."""
    OurConsole().print(text, highlight=False, soft_wrap=True, markup=False)


def print_facts(facts: object) -> None:
    """Prints JSON values, or structs, in one line."""
    print_text(readable_json(msgspec.json.encode(_encodable(msgspec.to_builtins(facts))).decode()))


def _encodable(facts: object) -> object:
    """The value with every text encodable: a path that was typed may hold any bytes."""
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


def print_either(text: str, facts: object, *, as_json: bool) -> None:
    if as_json:
        print_facts(facts)
    else:
        print_text(text)
