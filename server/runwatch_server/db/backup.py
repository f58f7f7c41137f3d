"""Backs up a SQLite database beside a running service, restores copies before one starts, and
compacts the database of a stopped one.

The copy is read in one transaction on a connection that cannot write, so it is one committed state,
and it never checkpoints the service's WAL. For PostgreSQL there are pg_dump and pg_basebackup.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa

from runwatch.errors import RunwatchError
from runwatch_server.db.data_dir import DataDirLock
from runwatch_server.db.sqlite import DATABASE_FILE, database_in
from runwatch_server.secret_files import make_empty

T = TypeVar("T")

_LEFT_BESIDE: Final = ("-wal", "-journal")
"""Files that a killed writer leaves; SQLite would apply them to the database that it finds beside
them."""


class BackupError(RunwatchError):
    """A copy that was not made or cannot be used: names the place, what was found and what was
    wanted."""


@contextmanager
def backed_up(data_dir: Path, target: Path) -> Generator[Path]:
    """Copy the database of a data directory to a file, which is then either complete or absent: the
    copy gets its name when the block, which may read it, has ended without an error.

    Raises BackupError and NoDatabaseError.
    """
    source = database_in(data_dir)
    if target.exists():
        raise BackupError(f"{target}: found a file there already, wanted a new name")
    if not os.access(target.parent, os.W_OK | os.X_OK):  # SQLite would only say that it cannot open
        found = "a folder that we may not write" if target.parent.is_dir() else "no such folder"
        raise BackupError(f"{target.parent}: found {found}, wanted one for the copy")
    unfinished = target.with_name(f".{target.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        make_empty(unfinished)
        with closing(
            sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
        ) as database:
            database.execute("VACUUM INTO ?", (str(unfinished),))
        _check(unfinished)
        yield unfinished
        _move(unfinished, target)
    except (sqlite3.Error, OSError) as error:
        raise BackupError(f"{target}: found {_reason(error)}, wanted a copy of {source}") from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def restored(copy: Path, data_dir: Path) -> Generator[Path]:
    """Restore a copy into a data directory without a database and without a running service; works
    like `backed_up`.

    Raises BackupError and DataDirInUseError.
    """
    if not copy.is_file():
        found = "a folder" if copy.is_dir() else "no such file"
        raise BackupError(f"{copy}: found {found}, wanted a copy that `runwatch db backup` made")
    target = data_dir / DATABASE_FILE
    lock = DataDirLock(data_dir)
    lock.acquire()
    unfinished = data_dir / f".{DATABASE_FILE}.unfinished"
    try:
        if target.exists():
            raise BackupError(f"{target}: found a database, wanted none: it would be lost")
        _check_nothing_beside(target)
        unfinished.unlink(missing_ok=True)
        make_empty(unfinished)
        shutil.copyfile(copy, unfinished)
        _check(unfinished)
        yield unfinished
        _move(unfinished, target)
    except (sqlite3.Error, OSError) as error:
        raise BackupError(f"{copy}: found {_reason(error)}, wanted a copy of a database") from error
    finally:
        unfinished.unlink(missing_ok=True)
        lock.release()


def compact(data_dir: Path) -> tuple[int, int]:
    """Write the database of a stopped service anew, without free pages and so that it gives space
    back by itself from then on. Returns the sizes of its file before and after, in bytes.

    Raises BackupError, NoDatabaseError and DataDirInUseError.
    """
    target = database_in(data_dir)
    lock = DataDirLock(data_dir)
    lock.acquire()
    unfinished = data_dir / f".{DATABASE_FILE}.unfinished"
    before = target.stat().st_size
    try:
        unfinished.unlink(missing_ok=True)
        make_empty(unfinished)
        with closing(sqlite3.connect(target)) as database:
            database.execute("PRAGMA auto_vacuum=INCREMENTAL")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the close removes the empty WAL
            database.execute("VACUUM INTO ?", (str(unfinished),))
        _check(unfinished)
        _check_nothing_beside(target)
        _move(unfinished, target)
    except (sqlite3.Error, OSError) as error:
        wanted = "a database to write anew, and room beside it for what it holds"
        raise BackupError(f"{target}: found {_reason(error)}, wanted {wanted}") from error
    finally:
        unfinished.unlink(missing_ok=True)
        lock.release()
    return before, target.stat().st_size


def ask_copy(copy: Path, question: Callable[[sa.Connection], T]) -> T:
    """Query a copy without writing to it."""
    uri = f"{copy.absolute().as_uri()}?mode=ro"
    # Not by an SQLAlchemy URL, which would remove the quoting of the path's characters.
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(uri, uri=True))
    try:
        with engine.connect() as connection:
            return question(connection)
    finally:
        engine.dispose()


def _reason(error: sqlite3.Error | OSError) -> str:
    """The reason in words, without an OSError's number and path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _check_nothing_beside(target: Path) -> None:
    """Raises BackupError if there are files of a killed writer beside the target."""
    for ending in _LEFT_BESIDE:
        left = target.with_name(f"{target.name}{ending}")
        if left.exists():
            raise BackupError(
                f"{left}: found what is left of another database, wanted none: it would be "
                "played into this one"
            )


def _check(path: Path) -> None:
    """Raises BackupError unless it is a complete database of this service."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        found = [line for (line,) in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            raise BackupError(f"{path.name}: found damage ({found[0]}), wanted a whole database")
        database.execute("SELECT version_num FROM alembic_version")


def _move(unfinished: Path, target: Path) -> None:
    """Flush the file to disk, and only then give it its name."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
