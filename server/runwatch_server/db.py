"""The database: many readers, and one writer that commits in groups.

All writing goes through `Database.write`. One thread owns the one writing connection; it takes
whatever works are waiting, runs each in a savepoint inside one transaction, commits once, and
only then are their callers told. So a frame costs a share of an fsync instead of a whole one, a
work that fails undoes nothing but itself, and an answer is never given before it is on disk. A
work runs from its start to its end in that thread, and so may await nothing but its connection.

SQLite runs with WAL and `synchronous=FULL`, and WAL checkpoints only on the writing connection:
before 3.51.3 a checkpoint that races a write of another connection can corrupt the WAL
(sqlite.org/wal.html#walresetbug). Nothing outside this module knows which database it is.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Generic, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from runwatch_server.direct_sqlite import DirectConnection, run_here
from runwatch_server.errors import DataDirError, DataDirInUseError, OverloadedError

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[AsyncConnection], Coroutine[Any, Any, T]]

DATABASE_FILE: Final = "runwatch.db"
SAFE_SQLITE: Final = (3, 51, 3)
"""From here on a checkpoint cannot race a write."""
_LOCK_FILE: Final = "lock"
_MAX_GROUP: Final = 64
"""Works in one transaction: bounds how long a caller waits for the works of others."""
_NUM_READERS: Final = 4
_BUSY_TIMEOUT_MS: Final = 10_000


class WriteObserver(Protocol):
    """Hears how the writer is doing."""

    def observe_commit(self, *, num_works: int, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    work: Work[T]
    done: "asyncio.Future[T]"

    async def run(self, connection: AsyncConnection) -> "_Finished[T]":
        """Runs the work in a savepoint, which a failure undoes."""
        try:
            async with connection.begin_nested():
                return _Finished(self.done, result=run_here(self.work(connection)))
        except Exception as error:  # noqa: BLE001 - any failure belongs to the caller that waits
            return _Finished(self.done, error=error)


class _Finished(Generic[T]):
    """What a work came to, told to its caller once the commit has decided."""

    def __init__(
        self,
        done: "asyncio.Future[T]",
        *,
        result: T | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._done = done
        self._result = result
        self._error = error

    def tell(self, commit_error: BaseException | None = None) -> None:
        if self._done.done():  # the caller went away; the work stands all the same
            return
        error = self._error or commit_error
        if error is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(self._result)  # type: ignore[arg-type]  # T, set with no error


class Database:
    """Opened as an async context manager; closing commits what is queued."""

    def __init__(
        self,
        data_dir: Path,
        *,
        queue_works: int = 4096,
        observer: WriteObserver | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._queue: asyncio.Queue[_Waiting[object] | None] = asyncio.Queue()
        self._queue_works = queue_works
        self._observer = observer
        self._lock = _DataDirLock(data_dir)
        self._writer: AsyncEngine = _writer_engine(self.url, data_dir / DATABASE_FILE)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database writer")
        self._readers: AsyncEngine = _reader_engine(self.url)
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def url(self) -> str:
        return f"sqlite+aiosqlite:///{self._data_dir / DATABASE_FILE}"

    @property
    def num_waiting(self) -> int:
        """Works that no transaction has taken yet."""
        return self._queue.qsize()

    @property
    def is_overloaded(self) -> bool:
        return self.num_waiting >= self._queue_works

    async def __aenter__(self) -> "Database":
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except OSError as error:
            raise DataDirError(self._data_dir, error) from error
        if sqlite3.sqlite_version_info < SAFE_SQLITE:
            log.warning(
                "SQLite %s can damage its WAL when another process writes at a checkpoint; nothing "
                "but this service may write to %s, or use 3.51.3 or newer",
                sqlite3.sqlite_version,
                self._data_dir / DATABASE_FILE,
            )
        return self

    async def migrate(self, upgrade: Callable[[sa.Connection], None]) -> None:
        """Runs the migrations on the writing connection, before anything else does."""
        assert self._task is None, "migrations come before the first write"
        async with self._writer.connect() as connection:
            await connection.run_sync(upgrade)
            await connection.commit()

    def start(self) -> None:
        """Lets writing begin."""
        self._task = asyncio.create_task(self._write_groups(), name="database writer")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing = True
        if self._task is not None:
            self._queue.put_nowait(None)
            await self._task
        await self._readers.dispose()
        await self._writer.dispose()  # last: it alone may fold the WAL into the database
        self._thread.shutdown()
        self._lock.release()

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection that sees one committed state and cannot write."""
        return self._read()

    @asynccontextmanager
    async def _read(self) -> AsyncGenerator[AsyncConnection]:
        async with self._readers.connect() as connection:
            yield connection

    async def ping(self) -> None:
        """Raises where the database does not answer."""
        async with self.read() as connection:
            await connection.execute(sa.select(1))

    async def write(self, work: Work[T]) -> T:
        """Runs a work on the writing connection; returns its result once that is on disk.

        Raises what the work raises, with all that it wrote undone, and OverloadedError where
        too many works wait already. A work may run to its end although its caller went away.
        """
        if self._is_closing:
            raise OverloadedError("stopping", "The service is stopping.", retry_after_s=5)
        if self.is_overloaded:
            raise OverloadedError("writer_queue_full", f"{self.num_waiting} writes are waiting.")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(work, done))  # type: ignore[arg-type]  # the future keeps T
        return await done

    async def _write_groups(self) -> None:
        async with self._writer.connect() as connection:
            is_open = True
            while is_open:
                group: list[_Waiting[Any]] = []
                waiting = await self._queue.get()
                while waiting is not None:
                    group.append(waiting)
                    if len(group) >= _MAX_GROUP or self._queue.empty():
                        break
                    waiting = self._queue.get_nowait()
                is_open = waiting is not None
                if group:
                    await self._commit(connection, group)

    async def _commit(self, connection: AsyncConnection, group: Sequence[_Waiting[Any]]) -> None:
        started = time.perf_counter()
        loop = asyncio.get_running_loop()
        try:
            finished = await loop.run_in_executor(
                self._thread, lambda: run_here(_transaction(connection, group))
            )
        except (SQLAlchemyError, OSError) as error:
            log.exception("a transaction of %d works was lost", len(group))
            failure = OverloadedError("not_committed", "The database did not commit.")
            failure.__cause__ = error
            for waiting in group:
                _Finished(waiting.done, error=failure).tell()
            return
        for one in finished:
            one.tell()
        if self._observer is not None:
            self._observer.observe_commit(
                num_works=len(group), seconds=time.perf_counter() - started
            )


async def _transaction(
    connection: AsyncConnection, group: Sequence[_Waiting[Any]]
) -> list[_Finished[Any]]:
    async with connection.begin():
        return [await waiting.run(connection) for waiting in group]


class _DataDirLock:
    """Held for the life of the process; the kernel frees it however the process ends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        file = (self._data_dir / _LOCK_FILE).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            with contextlib.closing(file):
                raise DataDirInUseError(self._data_dir, file.read().strip()) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _writer_engine(url: str, path: Path) -> AsyncEngine:
    async def connect() -> DirectConnection:
        return DirectConnection(path)

    engine = create_async_engine(url, pool_size=1, max_overflow=0, async_creator=connect)
    _prepare(
        engine,
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "PRAGMA foreign_keys=ON",
        "PRAGMA journal_size_limit=67108864",
        "PRAGMA wal_autocheckpoint=2000",
        begin="BEGIN IMMEDIATE",
    )
    return engine


def _reader_engine(url: str) -> AsyncEngine:
    engine = create_async_engine(url, pool_size=_NUM_READERS, max_overflow=0)
    _prepare(
        engine,
        "PRAGMA query_only=ON",
        "PRAGMA wal_autocheckpoint=0",
        "PRAGMA mmap_size=1073741824",
        "PRAGMA cache_size=-32768",
        begin="BEGIN",
    )
    return engine


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...
    def close(self) -> None: ...


class _DriverConnection(Protocol):
    isolation_level: str | None

    def cursor(self) -> _Cursor: ...


def _prepare(engine: AsyncEngine, *pragmas: str, begin: str) -> None:
    """Takes transactions out of the driver's hands: it would begin them late and lose savepoints
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
