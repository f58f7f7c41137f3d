"""The list of all commands."""

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from runwatch import __version__
from runwatch_server.cli.choices import in_our_words
from runwatch_server.cli.lazy import FORWARDS_ARGUMENTS, LazyCommand

_HERE: Final = "runwatch_server.cli"
_UP_TO_THE_COMMAND: Final = {"allow_interspersed_args": False}
"""Arguments after the command of `runwatch run` belong to the job."""


def _commands() -> list[LazyCommand]:
    """The commands, in the order in which the help shows them."""
    return [
        LazyCommand("serve", f"{_HERE}.serve:serve", "Run the service."),
        LazyCommand(
            "demo",
            f"{_HERE}.demo:demo",
            "Train a small GPT three times: clean, broken, and broken with Runwatch watching.",
        ),
        LazyCommand(
            "run",
            f"{_HERE}.run:run",
            "Run a job and watch it.",
            context_settings=_UP_TO_THE_COMMAND,
        ),
        LazyCommand(
            "open",
            f"{_HERE}.open_record:open_record",
            "Show the runs of a data folder in a browser, until Ctrl-C.",
        ),
        LazyCommand(
            "doctor",
            f"{_HERE}.doctor:doctor",
            "Find what is missing or misconfigured, on this machine and at the service.",
        ),
        LazyCommand("runs", f"{_HERE}.runs:runs", "Show the newest runs."),
        LazyCommand(
            "tail",
            f"{_HERE}.tail:tail",
            "Follow a run until it ends: curves, worst layers, alerts and commands.",
        ),
        LazyCommand("alerts", f"{_HERE}.alerts:alerts", "Show the newest alerts."),
        LazyCommand(
            "signal",
            f"{_HERE}.acting:signal",
            "Give a run a command; the trainer applies it at its next step boundary.",
        ),
        LazyCommand(
            "policy",
            f"{_HERE}.acting:policy",
            "Set how far rules may act on a run; the trainer's allow-list still has the last word.",
        ),
        LazyCommand(
            "approve",
            f"{_HERE}.acting:approve",
            "Approve a command that a rule proposed, so that it goes to the trainer.",
        ),
        LazyCommand(
            "cancel",
            f"{_HERE}.acting:cancel",
            "Cancel a command that no trainer has accepted yet, or reject a proposal.",
        ),
        LazyCommand(
            "backtest",
            f"{_HERE}.backtest:backtest",
            "Show which alerts rules would have raised on past runs.",
        ),
        LazyCommand(
            "import",
            f"{_HERE}.import_logs:import_logs",
            "Import logs into a service as finished runs; importing them again changes nothing.",
        ),
        LazyCommand(
            "sync",
            f"{_HERE}.sync:sync",
            "Send spool directories to a service.",
            **FORWARDS_ARGUMENTS,
        ),
        LazyCommand(
            "replay",
            f"{_HERE}.replay:replay",
            "Run a bundle's step again and name the module and operation that broke it.",
            **FORWARDS_ARGUMENTS,
        ),
        LazyCommand("keys", f"{_HERE}.keys:app", "Manage API keys; needs the scope admin."),
        LazyCommand("rules", f"{_HERE}.rules:app", "Check, test, list and apply rules."),
        LazyCommand(
            "retention",
            f"{_HERE}.retention:app",
            "Show and set how long frames, evidence and rollups are kept.",
        ),
        LazyCommand("db", f"{_HERE}.database:app", "Manage the database without the service."),
    ]


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in _commands():
            self.add_command(command)

    def invoke(self, ctx: Any) -> Any:
        """All commands are parsed in here."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = in_our_words(error.message)
            raise


app = typer.Typer(
    name="runwatch", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _runwatch(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A watchdog for deep-learning training runs."""
