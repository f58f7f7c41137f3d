"""The space that SQLite holds without using it: free pages in its file, and an idle WAL.

Deleting rows only frees pages. Incremental vacuum moves the last pages into free ones and shortens
the file; it works only where `auto_vacuum` was set before the first table was made, so an older
file has to be compacted once (`db/backup.py`). All of this runs on the writing connection, in its
thread.
"""

import logging
import sqlite3
from pathlib import Path
from typing import Final

from runwatch_server.db.direct_sqlite import DirectConnection

log = logging.getLogger(__name__)

PRAGMAS: Final = (
    "PRAGMA auto_vacuum=INCREMENTAL",  # before the first page is written, which WAL does
    "PRAGMA secure_delete=FAST",  # some builds zero freed pages: deleting would fill the WAL
)
_SPARE_BYTES: Final = 4 << 20
"""Free pages and a WAL up to this size are left alone: they would soon be needed again."""
_PAGES_AT_ONCE: Final = 512
"""Pages given back in one transaction, some 2 MiB, so that other writes come in between."""
_WAIT_MS: Final = 100
"""Longest wait for readers of the WAL, and so of writes for its truncation."""


def free_bytes(driver: DirectConnection) -> int:
    """Size of the pages within the file that the next writes will use."""
    return int(driver.ask("freelist_count") * driver.ask("page_size"))


def is_much(num_free_bytes: int, wal: Path) -> bool:
    """Whether there is enough to give back."""
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    return max(num_free_bytes, wal_bytes) > _SPARE_BYTES


def truncate_wal(driver: DirectConnection) -> None:
    """Copy the WAL into the file and empty it, unless readers still use it."""
    usual_ms = driver.ask("busy_timeout")
    driver.ask(f"busy_timeout={_WAIT_MS}")
    try:
        driver.ask("wal_checkpoint(TRUNCATE)")
    finally:
        driver.ask(f"busy_timeout={usual_ms}")


def vacuum_some(driver: DirectConnection) -> bool:
    """Shorten the file by some of its free pages; returns whether there may be more. Without
    `auto_vacuum` it does nothing."""
    before = driver.ask("freelist_count")
    try:
        driver.carry_out(f"incremental_vacuum({_PAGES_AT_ONCE})")
    except sqlite3.OperationalError as error:
        log.warning("space could not be given back (%s); tried again", error)
        return False
    return bool(0 < driver.ask("freelist_count") < before)
