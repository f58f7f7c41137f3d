"""What the `runwatch db` commands share: which database they use, and how they fail."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from runwatch.errors import RunwatchError
from runwatch_server.cli.output import OurConsole
from runwatch_server.db import Database, make_store
from runwatch_server.settings import Settings

T = TypeVar("T")

DataDir = Annotated[Path | None, typer.Option(help="Folder of the SQLite database.")]
Url = Annotated[
    str | None, typer.Option(help="A PostgreSQL database instead: postgresql://user@host/name.")
]


def settings_of(data_dir: Path | None, database_url: str | None) -> Settings:
    """The environment's settings, overridden by the command line's. Raises SettingsError."""
    given = {"data_dir": data_dir, "database_url": database_url}
    return Settings.from_env(given={k: v for k, v in given.items() if v is not None})


def with_database(
    settings: Settings, work: Callable[[Database], Coroutine[Any, Any, T]]
) -> tuple[str, T]:
    """Opens the database and runs `work`; returns place and result. Raises RunwatchError."""

    async def run() -> tuple[str, T]:
        store = make_store(settings.data_dir, settings.database_url)
        async with Database(store) as database:
            return database.place, await work(database)

    return asyncio.run(run())


@contextmanager
def reported_errors() -> Generator[None]:
    """Prints what went wrong, and exits with 2."""
    try:
        yield
    except RunwatchError as error:
        console = OurConsole(stderr=True)
        console.print(f"[red]runwatch db:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
