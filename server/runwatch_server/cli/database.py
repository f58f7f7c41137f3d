"""`runwatch db`: the tables, without the service."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from runwatch.errors import RunwatchError
from runwatch_server.app import upgrade_schema
from runwatch_server.db import Database, SqliteStore
from runwatch_server.settings import Settings

app = typer.Typer(help="The database of a service that is not running.", no_args_is_help=True)


@app.command()
def upgrade(
    data_dir: Annotated[Path | None, typer.Option(help="Where the database lies.")] = None,
) -> None:
    """Bring the tables to the newest version; `serve` does the same at its start."""
    try:
        settings = Settings.from_env(given={} if data_dir is None else {"data_dir": data_dir})
        asyncio.run(_upgrade(settings.data_dir))
    except RunwatchError as error:
        Console(stderr=True).print(f"[red]runwatch db:[/] {error}", highlight=False)
        raise typer.Exit(2) from error
    Console().print(f"{settings.data_dir}: the tables are those of this version.")


async def _upgrade(data_dir: Path) -> None:
    async with Database(SqliteStore(data_dir)) as database:
        await database.migrate(upgrade_schema)
