"""The migrations make the tables that the code declares."""

from pathlib import Path

import alembic.autogenerate
import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.migration import MigrationContext

from runwatch_server.all_tables import metadata
from runwatch_server.app import upgrade_schema


def test_tables_and_migrations_agree(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        upgrade_schema(connection)

        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert alembic.autogenerate.compare_metadata(context, metadata) == []
    engine.dispose()


def test_every_migration_can_be_undone(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        upgrade_schema(connection)
        config = alembic.config.Config()
        config.set_main_option("script_location", "runwatch_migrations:")
        config.attributes["connection"] = connection

        alembic.command.downgrade(config, "base")

        assert sa.inspect(connection).get_table_names() == ["alembic_version"]
    engine.dispose()
