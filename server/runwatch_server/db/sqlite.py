"""SQLite: one file, one writing connection on a thread of its own, and readers beside it.

It uses WAL and `synchronous=FULL`, and checkpoints the WAL only on the writing connection: before
3.51.3, a checkpoint that races with a write of another connection can corrupt the WAL
(sqlite.org/wal.html#walresetbug). A work runs from start to end in the writer's thread.
"""

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from runwatch_server.cancellation import result_of
from runwatch_server.db import sqlite_space
from runwatch_server.db.data_dir import DataDirLock
from runwatch_server.db.direct_sqlite import DirectConnection, ThreadedConnection, run_here
from runwatch_server.db.group_writer import Order, Outcome
from runwatch_server.errors import (
    DatabaseDamagedError,
    DataDirError,
    NoDatabaseError,
    OverloadedError,
    UnprocessableError,
)
from runwatch_server.secret_files import make_private

T = TypeVar("T")

DATABASE_FILE: Final = "runwatch.db"
SAFE_SQLITE: Final = (3, 51, 3)
"""From this version on a checkpoint cannot race with a write."""
_NUM_READERS: Final = 4
_BUSY_TIMEOUT_MS: Final = 10_000


def database_in(data_dir: Path) -> Path:
    """The database's file. Raises NoDatabaseError if there is none."""
    path = data_dir / DATABASE_FILE
    if not path.is_file():
        raise NoDatabaseError(data_dir, DATABASE_FILE)
    return path


class SqliteStore:
    """The data directory of one process, with its SQLite database."""

    engine = "sqlite"
    num_lanes = 1
    is_shared = False

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / DATABASE_FILE
        self._lock = DataDirLock(data_dir)
        url = f"sqlite+aiosqlite:///{self._path}"
        self._writer: AsyncEngine = _writer_engine(url, self._path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database writer")
        self._threads = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="database reader")
        self._readers: AsyncEngine = _reader_engine(url, self._path, self._threads)
        self._writing: AsyncConnection | None = None
        self._file: os.stat_result | None = None
        """The file that the writer has open."""
        self.free_bytes = 0
        """Size of the free pages within the file, as of the last commit."""

    @property
    def place(self) -> str:
        return str(self._path)

    async def open(self) -> None:
        self._lock.acquire()
        try:
            _make_private(self._path)
        except OSError as error:
            self._lock.release()
            raise DataDirError(self._path.parent, error) from error

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing.close()
        await self._readers.dispose()
        await self._writer.dispose()  # last: only it may checkpoint the WAL
        self._thread.shutdown()
        self._threads.shutdown()
        self._lock.release()

    async def migrate(self, upgrade: Callable[[sa.Connection], None]) -> None:
        with _damage_reported(self.place):
            async with self._writer.connect() as connection:
                await connection.run_sync(upgrade)
                await connection.commit()
                self._file = self._path.stat()
                self.free_bytes = sqlite_space.free_bytes(_driver_of(connection))

    @property
    def channel(self) -> None:
        return None

    async def find_damage(self) -> list[str]:
        async with self.read() as connection:
            found = await connection.scalars(sa.text("PRAGMA integrity_check"))
            return [line for line in found if line != "ok"]

    async def give_back(self) -> None:
        wal = self._path.with_name(f"{DATABASE_FILE}-wal")
        if self._writing is None or not sqlite_space.is_much(self.free_bytes, wal):
            return
        driver = _driver_of(self._writing)
        await self._in_thread(partial(sqlite_space.truncate_wal, driver))
        while await self._in_thread(partial(sqlite_space.vacuum_some, driver)):
            pass  # a commit that waited meanwhile comes in between
        await self._in_thread(partial(sqlite_space.truncate_wal, driver))
        self.free_bytes = await self._in_thread(partial(sqlite_space.free_bytes, driver))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run something on the writing connection, which is in use until it ends."""
        return await result_of(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Raises OverloadedError if no reader was free for long, and DatabaseDamagedError."""
        return self._read()

    @asynccontextmanager
    async def _read(self) -> AsyncGenerator[AsyncConnection]:
        try:
            with _damage_reported(self.place):
                async with _connected(self._readers) as connection:
                    yield connection
        except PoolTimeoutError as error:
            raise OverloadedError("readers_busy", "Too many requests read at a time.") from error
        except OverflowError as error:
            raise _answer_of(error) from error

    async def commit(self, lane: int, orders: Sequence[Order]) -> list[Outcome]:
        with _damage_reported(self.place):
            if self._writing is None:
                self._writing = await self._writer.connect()
                self._file = self._file or self._path.stat()
            return await self._in_thread(partial(self._commit_here, self._writing, orders))

    def check(self) -> None:
        """Raises OSError if the file was deleted or replaced: SQLite would go on writing to it, and
        whoever starts next would find nothing of what was acknowledged."""
        if self._file is None or not os.path.samestat(self._file, self._path.stat()):
            raise OSError(errno.ESTALE, "another file stands in the database's place", self.place)

    def _commit_here(self, connection: AsyncConnection, orders: Sequence[Order]) -> list[Outcome]:
        """Commit works in the writer's thread. Raises OSError if the file is gone."""
        outcomes = run_here(_transaction(connection, orders))
        self.check()
        self.free_bytes = sqlite_space.free_bytes(_driver_of(connection))
        return outcomes


def _make_private(path: Path) -> None:
    """Makes the database, and what a killed service left beside it, readable by their owner only,
    in whatever folder. SQLite gives the files that it makes beside it the same mode."""
    make_private(path)
    for beside in (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm")):
        if beside.exists():
            make_private(beside)


def _driver_of(connection: AsyncConnection) -> DirectConnection:
    """The writing connection itself, which must be used in its thread and in no transaction."""
    assert connection.sync_connection is not None, "the writer's connection is open"
    driver = connection.sync_connection.connection.driver_connection
    assert isinstance(driver, DirectConnection), "the writer's engine makes no other"
    return driver


@contextmanager
def _damage_reported(place: str) -> Generator[None]:
    """Raises DatabaseDamagedError if SQLite reports that the file is damaged or not a database."""
    try:
        yield
    except DatabaseError as error:
        if _code_of(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        raise DatabaseDamagedError(place, str(error.orig)) from error


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
    """A connection of the pool. Returning it never suspends, so no cancellation can come between;
    SQLAlchemy's own `async with` would make a task for that, each time."""
    connection = engine.connect()
    await connection.start()
    try:
        yield connection
    finally:
        await connection.close()


async def _transaction(connection: AsyncConnection, orders: Sequence[Order]) -> list[Outcome]:
    if len(orders) == 1:
        return [await _run_alone(connection, orders[0])]
    async with connection.begin():
        return [await _run(connection, order) for order in orders]


async def _run_alone(connection: AsyncConnection, order: Order) -> Outcome:
    """Run a work in a transaction of its own, as most are: if it fails, there is nothing else to
    undo, so it needs no savepoint. Raises what `_run` raises."""
    async with connection.begin() as transaction:
        try:
            return Outcome(result=run_here(order.work(connection)))
        except Exception as error:
            if _is_of_disk(error):
                raise
            await transaction.rollback()
            return Outcome(error=_answer_of(error))


async def _run(connection: AsyncConnection, order: Order) -> Outcome:
    """Run a work in a savepoint, which a failure undoes. Raises errors that cost the whole
    transaction: if the disk fails, SQLite may have undone all of it by itself."""
    try:
        async with connection.begin_nested():
            return Outcome(result=run_here(order.work(connection)))
    except Exception as error:
        if _is_of_disk(error):
            raise
        return Outcome(error=_answer_of(error))


def _is_of_disk(error: Exception) -> bool:
    """Whether the disk is full, or cannot be read or written."""
    return _code_of(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def _code_of(error: Exception) -> int:
    """SQLite's primary result code; 0 if the error is not one of SQLite's."""
    code: int = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return code & 0xFF


def _answer_of(error: Exception) -> Exception:
    """The error to report: a number that SQLite cannot hold is the sender's fault."""
    if isinstance(error, OverflowError) and "SQLite" in str(error):
        told = UnprocessableError("unstorable_value", f"A value cannot be stored: {error}")
        told.__cause__ = error
        return told
    return error


def _writer_engine(url: str, path: Path) -> AsyncEngine:
    async def connect() -> DirectConnection:
        return DirectConnection(path)

    engine = create_async_engine(url, pool_size=1, max_overflow=0, async_creator=connect)
    _prepare(
        engine,
        *sqlite_space.PRAGMAS,
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "PRAGMA foreign_keys=ON",
        "PRAGMA journal_size_limit=67108864",
        "PRAGMA wal_autocheckpoint=2000",
        begin="BEGIN IMMEDIATE",
    )
    return engine


def _reader_engine(url: str, path: Path, threads: Executor) -> AsyncEngine:
    async def connect() -> ThreadedConnection:
        connection = ThreadedConnection(path, threads)
        # SQLite's own function knows only the letters of ASCII.
        await connection.create_function("lower", 1, _lower, deterministic=True)
        return connection

    engine = create_async_engine(url, pool_size=_NUM_READERS, max_overflow=0, async_creator=connect)
    _prepare(
        engine,
        "PRAGMA query_only=ON",
        "PRAGMA wal_autocheckpoint=0",
        "PRAGMA mmap_size=1073741824",
        "PRAGMA cache_size=-32768",
        begin="BEGIN",
    )
    return engine


def _lower(text: object) -> str | None:
    return None if text is None else str(text).lower()


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...
    def close(self) -> None: ...


class _DriverConnection(Protocol):
    isolation_level: str | None

    def cursor(self) -> _Cursor: ...


def _prepare(engine: AsyncEngine, *pragmas: str, begin: str) -> None:
    """Take transactions away from the driver, which would begin them late and lose savepoints
    (docs.sqlalchemy.org, "SQLite Transactions with the sqlite3 driver")."""

    def on_connect(connection: _DriverConnection, _: object) -> None:
        if connection.isolation_level is not None:
            connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}", *pragmas):
            cursor.execute(pragma)
        cursor.close()

    def on_begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine.sync_engine, "connect", on_connect)
    event.listen(engine.sync_engine, "begin", on_begin)
