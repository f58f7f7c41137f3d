"""What the commands of `runwatch db` share: which database they are about, and how they fail."""

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

DataDir = Annotated[Path | None, typer.Option(help="Where the SQLite database lies.")]
Url = Annotated[str | None, typer.Option(help="postgresql://user@host/name, in its place.")]


def settings_of(data_dir: Path | None, database_url: str | None) -> Settings:
    """The environment's, with what the command line gives put over them. Raises SettingsError."""
    given = {"data_dir": data_dir, "database_url": database_url}
    return Settings.from_env(given={k: v for k, v in given.items() if v is not None})


def with_database(
    settings: Settings, work: Callable[[Database], Coroutine[Any, Any, T]]
) -> tuple[str, T]:
    """Where the database is, and the work's result. Raises RunwatchError."""

    async def run() -> tuple[str, T]:
        store = make_store(settings.data_dir, settings.database_url)
        async with Database(store) as database:
            return database.place, await work(database)

    return asyncio.run(run())


@contextmanager
def said() -> Generator[None]:
    """Says what went wrong, and ends with 2."""
    try:
        yield
    except RunwatchError as error:
        console = OurConsole(stderr=True)
        console.print(f"[red]runwatch db:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
