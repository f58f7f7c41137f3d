"""`runwatch db`: the tables, without the service."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from runwatch.errors import RunwatchError
from runwatch_server.audit.chain import find_breaks
from runwatch_server.cli.output import AsJson, say, say_either, say_facts
from runwatch_server.db import Database, make_store
from runwatch_server.db.backup import BackupError, back_up
from runwatch_server.db.backup import restore as put_back
from runwatch_server.schema import SchemaState, schema_state, upgrade_schema
from runwatch_server.settings import Settings

T = TypeVar("T")

app = typer.Typer(
    help="The database, without the service.", no_args_is_help=True, add_completion=False
)

_DataDir = Annotated[Path | None, typer.Option(help="Where the SQLite database lies.")]
_Url = Annotated[str | None, typer.Option(help="postgresql://user@host/name, in its place.")]


@app.command()
def upgrade(data_dir: _DataDir = None, database_url: _Url = None, as_json: AsJson = False) -> None:
    """Bring the tables to the newest version; `serve` does the same at its start."""

    async def work(database: Database) -> None:
        await database.migrate(upgrade_schema)

    place, _ = _run(data_dir, database_url, work)
    said = f"{place}: the tables are those of this version."
    say_either(said, {"place": place, "is_current": True}, as_json=as_json)


@app.command()
def check(data_dir: _DataDir = None, database_url: _Url = None, as_json: AsJson = False) -> None:
    """Say whether the tables are those of this version, the file is whole and no deed of the
    audit was changed. Exits with 1 where it is not so."""

    async def work(database: Database) -> tuple[SchemaState, list[str]]:
        async with database.read() as connection:
            state = await connection.run_sync(schema_state)
            breaks = await find_breaks(connection) if state.is_current else []
        return state, await database.find_damage() + breaks

    place, (state, damage) = _run(data_dir, database_url, work)
    faults = [*_version_faults(state), *state.differences, *damage]
    if as_json:
        say_facts({"place": place, "is_current": state.is_current, "faults": faults})
    else:
        for line in faults or ["the tables are those of this version."]:
            say(f"{place}: {line}")
    if faults:
        raise typer.Exit(1)


def _version_faults(state: SchemaState) -> list[str]:
    if state.found == state.wanted:
        return []
    found = state.found or "none"
    return [
        f"found the tables of version {found}, wanted {state.wanted}; run `runwatch db upgrade`"
    ]


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A new file.")],
    data_dir: _DataDir = None,
    database_url: _Url = None,
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite database, also beside a running service, and look through the copy."""
    with _said():
        settings = _settings(data_dir, database_url)
        _refuse_postgres(settings, "pg_dump or pg_basebackup")
        back_up(settings.data_dir, target)
    facts = {"copy": str(target), "of": str(settings.data_dir)}
    say_either(f"{target}: a whole copy of {settings.data_dir}.", facts, as_json=as_json)


@app.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="A copy that `backup` made.")],
    data_dir: _DataDir = None,
    database_url: _Url = None,
    as_json: AsJson = False,
) -> None:
    """Put a copy into a data directory that has no database yet."""
    with _said():
        settings = _settings(data_dir, database_url)
        _refuse_postgres(settings, "pg_restore")
        put_back(copy, settings.data_dir)
    facts = {"copy": str(copy), "restored_to": str(settings.data_dir)}
    say_either(f"{settings.data_dir}: holds what {copy} held.", facts, as_json=as_json)


def _refuse_postgres(settings: Settings, instead: str) -> None:
    if settings.database_url is not None:
        raise BackupError(f"database_url: found PostgreSQL, wanted SQLite; use {instead} for it")


def _settings(data_dir: Path | None, database_url: str | None) -> Settings:
    given = {"data_dir": data_dir, "database_url": database_url}
    return Settings.from_env(given={k: v for k, v in given.items() if v is not None})


@contextmanager
def _said() -> Generator[None]:
    """Says what went wrong, and ends with 2."""
    try:
        yield
    except RunwatchError as error:
        console = Console(stderr=True)
        console.print(f"[red]runwatch db:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _run(
    data_dir: Path | None,
    database_url: str | None,
    work: Callable[[Database], Coroutine[Any, Any, T]],
) -> tuple[str, T]:
    async def run() -> tuple[str, T]:
        settings = _settings(data_dir, database_url)
        store = make_store(settings.data_dir, settings.database_url)
        async with Database(store) as database:
            return database.place, await work(database)

    with _said():
        return asyncio.run(run())
