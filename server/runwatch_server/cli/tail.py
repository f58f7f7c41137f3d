"""`runwatch tail RUN`: follows a run in a terminal."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Final, Protocol

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from runwatch.terminal_text import readable_line
from runwatch.vocabulary import RunState
from runwatch_server.cli.client import DEFAULT_URL, Token, UnavailableError, Url, open_client
from runwatch_server.cli.event_stream import EventStream
from runwatch_server.cli.live_screen import changes, line, screen
from runwatch_server.cli.output import AsJson, OurConsole, print_facts
from runwatch_server.cli.run_names import Run, find_run_id
from runwatch_server.cli.run_overview import OverviewReader, RunOverview

_POLL_S: Final = 5.0
_INTERRUPTED: Final = 130


class _Display(Protocol):
    """Where overviews are shown."""

    def show(self, overview: RunOverview, *, is_live: bool) -> None: ...

    def show_error(self, error: UnavailableError) -> None:
        """Shows that the service does not answer now."""


def tail(
    run: Run,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of newest steps that the curves show.")
    ] = 600,
    every: Annotated[
        float, typer.Option(min=0.1, help="Least number of seconds between two updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the run once and exit.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Follow a run until it ends: curves, worst layers, alerts and commands.

    Exits with 0 when the run has finished or was stopped, with 1 when it failed, with 2 if there is
    no such run or no answer, and with 130 after Ctrl-C.
    """
    with open_client(url, token) as client, _display(as_json=as_json) as display:
        reader = OverviewReader(client, find_run_id(client, run), steps)
        try:
            first = reader.read()
        except UnavailableError as error:
            client.fail_unavailable(error)
        try:
            last = first if once else _follow(reader, first, display, (url, token), every)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(_INTERRUPTED) from interrupt
        if once:
            display.show(first, is_live=False)
    raise typer.Exit(1 if last.run.state is RunState.FAILED else 0)


def _follow(
    reader: OverviewReader,
    overview: RunOverview,
    display: _Display,
    address: tuple[str, str],
    every_s: float,
) -> RunOverview:
    """Follows the run until it has ended; returns the last overview."""
    with EventStream(*address, overview.run.id) as events:
        display.show(overview, is_live=events.is_open)
        while not overview.run.state.is_ended:
            time.sleep(every_s)
            events.wait(_POLL_S)
            try:
                overview = reader.read()
            except UnavailableError as error:
                display.show_error(error)
            else:
                display.show(overview, is_live=events.is_open)
    return overview


@contextmanager
def _display(*, as_json: bool) -> Generator[_Display]:
    console = OurConsole()
    if as_json:
        yield _Json()
    elif console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield _Screen(live)
    else:
        yield _Lines(console)


class _Screen:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._last: RunOverview | None = None

    def show(self, overview: RunOverview, *, is_live: bool) -> None:
        self._last = overview
        how = "live" if is_live else f"polling every {_POLL_S:.0f} s"
        is_over = overview.run.state.is_ended
        self._draw("the run has ended" if is_over else f"{how}; Ctrl-C leaves, the run goes on")

    def show_error(self, error: UnavailableError) -> None:
        self._draw(f"{error}; trying again")

    def _draw(self, note: str) -> None:
        if self._last is not None:
            options = self._live.console.options
            shown = screen(
                self._last, note=note, width=options.max_width, only_ascii=options.ascii_only
            )
            self._live.update(shown, refresh=True)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: RunOverview | None = None

    def show(self, overview: RunOverview, *, is_live: bool) -> None:
        for text in (line(overview), *changes(self._before, overview)):
            self._console.print(Text(readable_line(text)), soft_wrap=True)
        self._before = overview

    def show_error(self, error: UnavailableError) -> None:
        self._console.print(Text(f"{error}; trying again"), soft_wrap=True)


class _Json:
    """Each line is a `RunOverview` without its curves: a reader has seen the earlier values."""

    def show(self, overview: RunOverview, *, is_live: bool) -> None:
        facts = msgspec.to_builtins(msgspec.structs.replace(overview, curves=[]))
        del facts["curves"]
        print_facts(facts | {"live": is_live})

    def show_error(self, error: UnavailableError) -> None:
        print_facts({"error": str(error)})
