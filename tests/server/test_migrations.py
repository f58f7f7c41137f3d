"""The migrations make the tables that the code declares, on both engines."""

from functools import partial

import alembic.command
import alembic.config
import pytest
import sqlalchemy as sa
from tests.server.harness import Storage, both_engines

from runwatch_server.db import Database, make_store
from runwatch_server.schema import schema_state, upgrade_schema

pytestmark = [pytest.mark.anyio, both_engines]


def downgrade_schema(connection: sa.Connection, to: str = "base") -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", "runwatch_migrations:")
    config.attributes["connection"] = connection
    alembic.command.downgrade(config, to)


def remaining_tables(connection: sa.Connection) -> list[str]:
    return sa.inspect(connection).get_table_names()


async def test_tables_and_migrations_agree(storage: Storage) -> None:
    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        await database.migrate(upgrade_schema)

        async with database.read() as connection:
            state = await connection.run_sync(schema_state)

        assert state.differences == []
        assert state.is_current


async def test_every_migration_can_be_undone(storage: Storage) -> None:
    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        await database.migrate(upgrade_schema)

        await database.migrate(downgrade_schema)

        async with database.read() as connection:
            assert await connection.run_sync(remaining_tables) == ["alembic_version"]


async def test_what_the_tables_of_an_older_version_lack_is_left_to_the_upgrade(
    storage: Storage,
) -> None:
    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        await database.migrate(upgrade_schema)
        await database.migrate(partial(downgrade_schema, to="-1"))

        async with database.read() as connection:
            state = await connection.run_sync(schema_state)
        assert (state.differences, state.is_current) == ([], False)


async def test_tables_of_a_newer_version_are_used_as_they_are(storage: Storage) -> None:
    def made_newer(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        await database.migrate(upgrade_schema)
        await database.migrate(made_newer)

        await database.migrate(upgrade_schema)

        async with database.read() as connection:
            state = await connection.run_sync(schema_state)
        assert (state.found, state.is_current) == ("9999", False)
