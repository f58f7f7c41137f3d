"""Copies of a SQLite database: taken beside a running service, and put where one is to start.

The copy is read in one transaction on a connection that cannot write, so that it is one committed
state, and never checkpoints the WAL of the service. PostgreSQL has pg_dump and pg_basebackup.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from runwatch.errors import RunwatchError
from runwatch_server.db.data_dir import DataDirLock
from runwatch_server.db.sqlite import DATABASE_FILE


class BackupError(RunwatchError):
    """A copy that was not made, or cannot be used: the place, what was found, what was wanted."""


def back_up(data_dir: Path, target: Path) -> None:
    """Copies the database of a data directory into a file that is whole or not there.

    Raises BackupError.
    """
    source = data_dir / DATABASE_FILE
    if not source.exists():
        raise BackupError(f"{data_dir}: found no {DATABASE_FILE}, wanted a data directory")
    if target.exists():
        raise BackupError(f"{target}: found a file there already, wanted a new name")
    unfinished = target.with_name(f".{target.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with closing(
            sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
        ) as database:
            database.execute("VACUUM INTO ?", (str(unfinished),))
        _check(unfinished)
        _move(unfinished, target)
    except (sqlite3.Error, OSError) as error:
        raise BackupError(f"{target}: found {error}, wanted a copy of {source}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def restore(copy: Path, data_dir: Path) -> None:
    """Puts a copy into a data directory that has no database and no service.

    Raises BackupError, and DataDirInUseError.
    """
    target = data_dir / DATABASE_FILE
    lock = DataDirLock(data_dir)
    lock.acquire()
    unfinished = data_dir / f".{DATABASE_FILE}.unfinished"
    try:
        if target.exists():
            raise BackupError(f"{target}: found a database, wanted none: it would be lost")
        unfinished.write_bytes(copy.read_bytes())
        _check(unfinished)
        _move(unfinished, target)
    except (sqlite3.Error, OSError) as error:
        raise BackupError(f"{copy}: found {error}, wanted a copy of a database") from error
    finally:
        unfinished.unlink(missing_ok=True)
        lock.release()


def _check(path: Path) -> None:
    """Raises BackupError unless it is a whole database of ours."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        found = [line for (line,) in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            raise BackupError(f"{path.name}: found damage ({found[0]}), wanted a whole database")
        database.execute("SELECT version_num FROM alembic_version")


def _move(unfinished: Path, target: Path) -> None:
    """On disk, and under its name only then."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
