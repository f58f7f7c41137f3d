"""The database: many readers, and one writer that commits in groups. Only this package knows which
engine it is."""

from runwatch_server.db.channel import Channel
from runwatch_server.db.database import Database
from runwatch_server.db.group_writer import Store, Work, WriteObserver
from runwatch_server.db.locks import EVENTS, wait_for_lock
from runwatch_server.db.opening import make_store
from runwatch_server.db.sqlite import SAFE_SQLITE, SqliteStore
from runwatch_server.db.upsert import insert_if_absent

__all__ = [
    "EVENTS",
    "SAFE_SQLITE",
    "Channel",
    "Database",
    "SqliteStore",
    "Store",
    "Work",
    "WriteObserver",
    "insert_if_absent",
    "make_store",
    "wait_for_lock",
]
