"""Commands whose modules are read when they are called for, and not before.

Reading all that the service is made of takes seconds; `runwatch runs` needs none of it. The list of
commands is shown, and completed by a shell, without reading any.
"""

import importlib
import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

HANDS_ON: Final[Mapping[str, Any]] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,  # the other program says what it takes
}
"""The settings of a command that is another program's, arguments and all."""


class LazyCommand(TyperCommand):
    """Stands in the list for a command, or a group of them, and becomes it when it is called."""

    def __init__(self, name: str, place: str, text: str, **settings: Any) -> None:
        """`place` is MODULE:NAME of a function or a `typer.Typer`, `text` the first sentence of its
        help, `settings` what `typer.Typer.command` takes."""
        super().__init__(name, help=text)
        self._place = place
        self._settings = settings

    @cached_property
    def real(self) -> TyperCommand | TyperGroup:
        module, _, attribute = self._place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(self.name, **self._settings)(found)
            found = alone
        command = typer.main.get_command(found)
        assert isinstance(command, TyperCommand | TyperGroup)
        _let_help_flow(command)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The real one's: all that follows (parsing, help, completion) goes by the context."""
        return self.real.make_context(info_name, args, parent, **extra)


def _let_help_flow(command: Any) -> None:
    """Takes the ends of lines that a docstring has out of a command's help, and out of those below
    it: in a narrower terminal each would leave a torn line."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _let_help_flow(below)
