"""SQLite as a driver for asyncio, with as few changes of thread as it can do with.

aiosqlite hands each call to a thread of its own: four hops a statement and three a transaction,
which took more time than SQLite did. Here a writer's connection never suspends, so a coroutine over
it can be run from its start to its end in any one thread; a reader's goes to a thread for what may
have to wait for the disk, a query, and for nothing else. Both have the face of aiosqlite, as far as
SQLAlchemy's dialect for it looks: `create_async_engine(..., async_creator=...)`.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class SuspendedError(Exception):
    """A coroutine awaited something else than a direct connection."""


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits direct connections only. Raises SuspendedError."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise SuspendedError("a work on the writer may await nothing but its connection")


class DirectCursor:
    """A cursor of a direct connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    async def __aenter__(self) -> "DirectCursor":
        return self

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> "DirectCursor":
        self._cursor.execute(sql, parameters)
        return self

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> "DirectCursor":
        self._cursor.executemany(sql, rows)
        return self

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def close(self) -> None:
        self._cursor.close()


class ThreadedCursor(DirectCursor):
    """A cursor of a threaded connection, which it reads with."""

    def __init__(self, connection: sqlite3.Connection, threads: Executor) -> None:
        super().__init__(connection)
        self._threads = threads
        self._rows: list[Any] = []

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> "ThreadedCursor":
        if self._cursor.connection.in_transaction:
            await self._to_the_end(sql, parameters)
        else:
            self._query(sql, parameters)
        return self

    async def _to_the_end(self, sql: str, parameters: Sequence[Any]) -> None:
        """In a thread; also where its asker is cancelled: what he does next, which is to end the
        transaction, would find the connection in use."""
        loop = asyncio.get_running_loop()
        query = loop.run_in_executor(self._threads, self._query, sql, parameters)
        try:
            await asyncio.shield(query)
        except asyncio.CancelledError:
            await asyncio.wait([query])
            raise

    def _query(self, sql: str, parameters: Sequence[Any]) -> None:
        self._cursor.execute(sql, parameters)
        self._rows = self._cursor.fetchall()

    async def fetchall(self) -> list[Any]:
        return self._rows


class DirectConnection:
    """Used by one thread at a time, which need not be the same always. Transactions are the
    caller's: the driver begins none."""

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection | None = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )

    @property
    def _conn(self) -> sqlite3.Connection:
        assert self._connection is not None, "a closed connection is asked for nothing"
        return self._connection

    @property
    def isolation_level(self) -> str | None:
        return self._conn.isolation_level

    def cursor(self) -> DirectCursor:
        return DirectCursor(self._conn)

    async def create_function(
        self, name: str, num_parameters: int, function: Callable[..., Any], **options: Any
    ) -> None:
        self._conn.create_function(name, num_parameters, function, **options)

    async def commit(self) -> None:
        self._conn.commit()

    async def rollback(self) -> None:
        self._conn.rollback()

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ThreadedConnection(DirectConnection):
    """A reader's: its queries run in threads, of which there must be one for each connection that
    is in use. What comes before BEGIN prepares it, BEGIN notes that a transaction is wanted, and
    at its end nothing is to be undone: none of it asks the disk."""

    def __init__(self, path: Path, threads: Executor) -> None:
        super().__init__(path)
        self._threads = threads

    def cursor(self) -> ThreadedCursor:
        return ThreadedCursor(self._conn, self._threads)
