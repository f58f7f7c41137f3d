"""`runwatch db`: the database, without the service."""

from functools import partial
from typing import Annotated

import typer

from runwatch_server.audit.chain import find_breaks
from runwatch_server.cli.backups import backup, compact, restore
from runwatch_server.cli.open_database import (
    DataDir,
    Url,
    reported_errors,
    settings_of,
    with_database,
)
from runwatch_server.cli.output import AsJson, OurConsole, print_either, print_facts, print_text
from runwatch_server.cli.progress import new_progress
from runwatch_server.db import Database
from runwatch_server.db.sqlite import database_in
from runwatch_server.objects import ObjectStore, make_objects
from runwatch_server.schema import SchemaState, schema_state, upgrade_schema
from runwatch_server.telemetry.frame_check import find_damaged, num_frames
from runwatch_server.telemetry.packs.copies import find_faults
from runwatch_server.telemetry.packs.queries import indexed_objects

app = typer.Typer(
    help="Manage the database without the service.", no_args_is_help=True, add_completion=False
)


@app.command()
def upgrade(data_dir: DataDir = None, database_url: Url = None, as_json: AsJson = False) -> None:
    """Upgrade the tables to the newest version; `serve` does the same when it starts."""

    async def work(database: Database) -> None:
        await database.migrate(upgrade_schema)

    with reported_errors():
        place, _ = with_database(settings_of(data_dir, database_url), work)
    told = f"{place}: the tables are those of this version."
    print_either(told, {"place": place, "is_current": True}, as_json=as_json)


@app.command()
def check(
    data_dir: DataDir = None,
    database_url: Url = None,
    with_objects: Annotated[
        bool, typer.Option("--objects/--no-objects", help="Also read all packed objects.")
    ] = True,
    with_frames: Annotated[
        bool, typer.Option("--frames/--no-frames", help="Also decode all frames in the database.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check that the tables are those of this version, that the file, all frames and all packed
    objects are intact, and that nobody has changed the audit. Exits with 1 if a check fails."""
    with reported_errors():
        settings = settings_of(data_dir, database_url)
        if settings.database_url is None:
            database_in(settings.data_dir)  # raises if there is none; opening would create it
        objects = make_objects(settings.objects_url)

        async def work(database: Database) -> tuple[SchemaState, list[str]]:
            async with database.read() as connection:
                state = await connection.run_sync(schema_state)
                breaks = await find_breaks(connection) if state.is_current else []
            damage = await database.find_damage()
            if with_frames and state.is_current and not damage:  # a damaged file is not read
                damage += await _frame_faults(database)
            if with_objects:
                damage += await _object_faults(database, objects)
            return state, breaks + damage

        place, (state, damage) = with_database(settings, work)
    faults = [*_version_faults(state), *state.differences, *damage]
    if as_json:
        print_facts({"place": place, "is_current": state.is_current, "faults": faults})
    else:
        for line in faults or ["the tables are those of this version."]:
            print_text(f"{place}: {line}")
    if faults:
        raise typer.Exit(1)


app.command()(backup)
app.command()(restore)
app.command()(compact)


async def _frame_faults(database: Database) -> list[str]:
    async with database.read() as connection:
        total = await num_frames(connection)
    with new_progress(OurConsole(stderr=True)) as progress:
        task = progress.add_task("frames", total=total)
        return await find_damaged(database, partial(progress.advance, task))


async def _object_faults(database: Database, objects: ObjectStore | None) -> list[str]:
    async with database.read() as connection:
        indexed = await connection.run_sync(indexed_objects)
    if indexed and objects is None:
        return [f"objects_url: found none, wanted the store of {len(indexed)} packed objects"]
    return await find_faults(objects, indexed) if objects is not None else []


def _version_faults(state: SchemaState) -> list[str]:
    if state.found == state.wanted:
        return []
    found = state.found or "none"
    return [
        f"found the tables of version {found}, wanted {state.wanted}; run `runwatch db upgrade`"
    ]
