"""The tables as the migrations make them, on a database that is there."""

from collections.abc import Sequence
from dataclasses import dataclass

import alembic.autogenerate
import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from runwatch_server.all_tables import metadata


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds, against what this version wants."""

    found: str | None
    """Revision of the database; None: no tables yet."""
    wanted: str
    differences: Sequence[str]
    """Where the tables are not those that the code declares."""

    @property
    def is_current(self) -> bool:
        return self.found == self.wanted and not self.differences


def upgrade_schema(connection: sa.Connection) -> None:
    """Brings the database to the newest version of its tables."""
    config = _config()
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def schema_state(connection: sa.Connection) -> SchemaState:
    """Looks, and changes nothing."""
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    assert wanted is not None, "there is a migration"
    found = context.get_current_revision()
    compared: list[object] = []
    if found is not None:
        compared += alembic.autogenerate.compare_metadata(context, metadata)
    return SchemaState(found, wanted, [str(difference) for difference in compared])


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", "runwatch_migrations:")
    return config
