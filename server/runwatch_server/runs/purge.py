"""Removes everything that belongs to a run, in chunks, so that no other write waits for long."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.runs.queries import find_run
from runwatch_server.runs.tables import runs
from runwatch_server.tables import metadata
from runwatch_server.telemetry.packs.queries import note_loose
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import events, frames, histograms, rollups

_CHUNK_ROWS: Final = 500
_OF_STEPS: Final = (frames, rollups, events, histograms)
"""The tables that grow with the steps of a run."""


async def purge_run(database: Database, run_id: RunId) -> None:
    """Deletes the rows of a removed run in every table that grows with runs.

    Deletes nothing of a new run that has come under the same id since.
    """
    for table in _tables():
        while await _purge_chunk(database, table, run_id) == _CHUNK_ROWS:
            pass


async def has_remains(connection: AsyncConnection, run_id: RunId) -> bool:
    """Whether rows of a run are left; for a removed run, its removal is then incomplete."""
    left = [sa.exists().where(table.c.run_id == run_id) for table in _tables()]
    return bool(await connection.scalar(sa.select(sa.or_(*left))))


async def purge_orphans(database: Database) -> int:
    """Finishes removals that a stop of the service interrupted; returns the number of runs."""
    async with database.read() as connection:
        orphans = {
            RunId(run_id)
            for table in _tables()
            for run_id in await connection.scalars(orphans_in(table))
        }
    for run_id in orphans:
        await purge_run(database, run_id)
    return len(orphans)


def orphans_in(table: sa.Table) -> sa.Select[str]:
    """The runs that have rows in a table and were removed."""
    found = _run_ids(table) if table in _OF_STEPS else table
    run_id: sa.ColumnElement[str] = found.c.run_id
    is_orphan = run_id.is_not(None) & run_id.not_in(sa.select(runs.c.id))
    return sa.select(run_id).where(is_orphan).distinct()


def _run_ids(table: sa.Table) -> sa.CTE:
    """The runs that have rows in a table, and a null, by a look into its index for each. DISTINCT
    would read all rows, of which a long run has many thousands."""
    first = sa.select(sa.func.min(table.c.run_id).label("run_id"))
    found = first.cte("found", recursive=True)
    following = sa.select(sa.func.min(table.c.run_id)).where(table.c.run_id > found.c.run_id)
    another = sa.select(following.scalar_subquery()).where(found.c.run_id.is_not(None))
    return found.union_all(another)


def _tables() -> list[sa.Table]:
    return [table for table in metadata.sorted_tables if "run_id" in table.c]


async def _purge_chunk(database: Database, table: sa.Table, run_id: RunId) -> int:
    keys = list(table.primary_key.columns)
    chunk = sa.select(*keys).where(table.c.run_id == run_id).order_by(*keys).limit(_CHUNK_ROWS)

    async def work(connection: AsyncConnection) -> int:
        if await find_run(connection, run_id) is not None:
            return 0
        if table is packs:
            names = await connection.scalars(chunk.with_only_columns(packs.c.object))
            await note_loose(connection, list(names), now=0.0)  # for the next sweep
        deletion = table.delete().where(
            table.c.run_id == run_id, sa.tuple_(*keys).in_(chunk.subquery().select())
        )
        return (await connection.execute(deletion)).rowcount

    return await database.write(work, of=run_id)
