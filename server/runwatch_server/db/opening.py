"""Chooses the engine: SQLite in the data directory, or the PostgreSQL that is configured."""

import importlib
from pathlib import Path

from runwatch.extras import pip_install
from runwatch_server.db.group_writer import Store
from runwatch_server.db.sqlite import SqliteStore
from runwatch_server.errors import SettingsError


def make_store(data_dir: Path, database_url: str | None = None) -> Store:
    """Raises SettingsError for an invalid URL."""
    if database_url is None:
        return SqliteStore(data_dir)
    try:  # imported by name, since asyncpg may not be installed
        module = importlib.import_module("runwatch_server.db.postgresql")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "database_url: found one, but no asyncpg to reach it with; "
            f"install it with: {pip_install('postgres')}"
        ) from error
    store: Store = module.PostgresStore(database_url)
    return store
