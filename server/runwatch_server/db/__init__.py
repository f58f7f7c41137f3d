"""The database: many readers, and one writer that commits in groups; which engine it is, nothing
outside this package knows."""

from runwatch_server.db.database import Database
from runwatch_server.db.group_writer import Store, Work, WriteObserver
from runwatch_server.db.locks import wait_for_lock
from runwatch_server.db.opening import make_store
from runwatch_server.db.sqlite import SAFE_SQLITE, SqliteStore

__all__ = [
    "SAFE_SQLITE",
    "Database",
    "SqliteStore",
    "Store",
    "Work",
    "WriteObserver",
    "make_store",
    "wait_for_lock",
]
