"""What SQLite gives back: pages that removals freed, and its WAL."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.db import Database, SqliteStore
from runwatch_server.db.backup import compact
from runwatch_server.db.sqlite import DATABASE_FILE
from runwatch_server.errors import DataDirInUseError

pytestmark = pytest.mark.anyio

MIB = 2**20
blocks = sa.Table(
    "blocks",
    sa.MetaData(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("body", sa.LargeBinary),
)


async def fill(connection: AsyncConnection) -> None:
    rows = [{"number": number, "body": bytes(50_000)} for number in range(400)]
    await connection.execute(blocks.insert(), rows)


async def remove(connection: AsyncConnection) -> None:
    await connection.execute(blocks.delete().where(blocks.c.number >= 4))


async def filled(database: Database) -> None:
    await database.migrate(blocks.create)
    database.start()
    await database.write(fill)


def make_old_file(data_dir: Path) -> None:
    """As it was made before `auto_vacuum` was set."""
    with closing(sqlite3.connect(data_dir / DATABASE_FILE)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")


def size(data_dir: Path, ending: str = "") -> int:
    return (data_dir / f"{DATABASE_FILE}{ending}").stat().st_size


async def test_what_a_removal_frees_is_given_back_to_the_disk(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await filled(database)
        await database.write(remove)
        freed = database.free_bytes
        await database.give_back()

        assert freed > 18 * MIB
        assert size(tmp_path) < MIB
        assert size(tmp_path, "-wal") == 0
        assert database.free_bytes == 0
        async with database.read() as connection:
            assert await connection.scalar(sa.select(sa.func.count()).select_from(blocks)) == 4
        assert await database.find_damage() == []


async def test_removing_writes_no_more_to_the_wal_than_it_has_to(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await filled(database)
        await database.give_back()
        await database.write(remove)

        assert size(tmp_path, "-wal") < MIB


async def test_a_reader_delays_the_truncation_but_neither_fails(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await filled(database)
        async with database.read() as connection:
            seen = await connection.scalar(sa.select(sa.func.count()).select_from(blocks))
            await database.write(remove)
            await database.give_back()
            again = await connection.scalar(sa.select(sa.func.count()).select_from(blocks))
        await database.give_back()

        assert (seen, again) == (400, 400)
        assert size(tmp_path) < MIB


async def test_an_older_file_says_what_is_free_in_it_and_shrinks_once_it_is_compacted(
    tmp_path: Path,
) -> None:
    make_old_file(tmp_path)
    async with Database(SqliteStore(tmp_path)) as database:
        await filled(database)
        await database.write(remove)
        await database.give_back()
        stayed = size(tmp_path)
        assert database.free_bytes > 18 * MIB
        with pytest.raises(DataDirInUseError):
            compact(tmp_path)

    before, after = compact(tmp_path)

    assert stayed == before > 18 * MIB
    assert after == size(tmp_path) < MIB
    async with Database(SqliteStore(tmp_path)) as database:
        database.start()
        await database.write(lambda connection: connection.execute(blocks.delete()))
        await database.write(fill)
        await database.write(remove)
        await database.give_back()
        assert size(tmp_path) < MIB
