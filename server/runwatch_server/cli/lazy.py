"""Commands whose modules are imported only when they are called.

Importing all of the service takes seconds, and `runwatch runs` needs none of it. The list of
commands is shown, and completed by a shell, without importing any.
"""

import importlib
import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

FORWARDS_ARGUMENTS: Final[Mapping[str, Any]] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,  # the other program has a help of its own
}
"""Settings of a command that hands all its arguments to another program."""


class LazyCommand(TyperCommand):
    """A placeholder in the list for a command or a group, which is imported when it is called."""

    def __init__(self, name: str, place: str, text: str, **settings: Any) -> None:
        """`place` is MODULE:NAME of a function or a `typer.Typer`, `text` the first sentence of its
        help, `settings` are arguments of `typer.Typer.command`."""
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
        _join_help_lines(command)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The real command's context, which parsing, help and completion all use."""
        return self.real.make_context(info_name, args, parent, **extra)


def _join_help_lines(command: Any) -> None:
    """Joins the lines of a docstring in the help of a command and of those below it: on a narrower
    terminal each line end would leave a broken line."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _join_help_lines(below)
