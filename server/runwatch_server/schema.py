"""The tables as the migrations make them, on a database that is there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import alembic.autogenerate
import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from runwatch_server.all_tables import metadata

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds, against what this version wants."""

    found: str | None
    """Revision of the database; None: no tables yet."""
    wanted: str
    differences: Sequence[str]
    """Where the tables of the wanted version are not those that the code declares."""

    @property
    def is_current(self) -> bool:
        return self.found == self.wanted and not self.differences


def upgrade_schema(connection: sa.Connection) -> None:
    """Brings the database to the newest version of its tables.

    One that a newer version has made is left as it is: migrations only add, so that this version
    can go on beside the newer one while replicas are replaced, and come back after it.
    """
    config = _config()
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and not _is_known(config, found):
        log.warning("the database is of a newer version (revision %s): used as it is", found)
        return
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def schema_state(connection: sa.Connection) -> SchemaState:
    """Looks, and changes nothing."""
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    assert wanted is not None, "there is a migration"
    found = context.get_current_revision()
    compared: list[object] = []
    if found == wanted:  # else the upgrade makes them
        compared += alembic.autogenerate.compare_metadata(context, metadata)
    return SchemaState(found, wanted, [str(difference) for difference in compared])


def _is_known(config: alembic.config.Config, revision: str) -> bool:
    script = ScriptDirectory.from_config(config)
    return any(one.revision == revision for one in script.walk_revisions())


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", "runwatch_migrations:")
    return config
