"""Brings an existing database to the newest migration, and compares it with the code."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import alembic.autogenerate
import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from runwatch_server.all_tables import metadata
from runwatch_server.errors import LostDatabaseError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema of a database, compared with the one that this version needs."""

    found: str | None
    """Revision of the database; None: no tables yet."""
    wanted: str
    differences: Sequence[str]
    """Differences between the tables of the wanted revision and those that the code declares."""

    @property
    def is_current(self) -> bool:
        return self.found == self.wanted and not self.differences


def upgrade_schema(connection: sa.Connection) -> None:
    """Upgrades the database to the newest revision.

    A database of a newer version is left as it is. Migrations only add, so this version can run
    beside the newer one while replicas are replaced, and again after a downgrade.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    if found == _wanted():  # as at nearly every start: no migration is looked for
        return
    config = _config()
    if found is not None and not _is_known(config, found):
        log.warning("the database is from a newer version (revision %s): used as it is", found)
        return
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def upgrade_beside(secret: Path) -> Callable[[sa.Connection], None]:
    """An upgrade that raises LostDatabaseError if there are no tables although the secret shows
    that a service has run here: what it had acknowledged may have been in a WAL that somebody
    deleted, and nothing is to be begun in its place unasked."""

    def upgrade(connection: sa.Connection) -> None:
        if secret.exists() and not sa.inspect(connection).get_table_names():
            raise LostDatabaseError(secret)
        upgrade_schema(connection)

    return upgrade


def schema_state(connection: sa.Connection) -> SchemaState:
    """Reads the state; changes nothing."""
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    wanted = _wanted()
    found = context.get_current_revision()
    compared: list[object] = []
    if found == wanted:  # otherwise the upgrade has yet to make them
        compared += alembic.autogenerate.compare_metadata(context, metadata)
    return SchemaState(found, wanted, [str(difference) for difference in compared])


@functools.cache  # reads every migration's file, which are those of the installed version
def _wanted() -> str:
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    assert wanted is not None, "there is a migration"
    return wanted


def _is_known(config: alembic.config.Config, revision: str) -> bool:
    script = ScriptDirectory.from_config(config)
    return any(one.revision == revision for one in script.walk_revisions())


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", "runwatch_migrations:")
    return config
