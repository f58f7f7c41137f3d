"""A SQLite driver for asyncio with as few thread switches as possible.

aiosqlite hands each call to a thread of its own: four switches per statement and three per
transaction, which took more time than SQLite did. Here the connection of a writer never suspends,
so a coroutine that uses it can run from start to end in any single thread. That of a reader uses a
thread only for queries, which may have to wait for the disk. Both look like aiosqlite to
SQLAlchemy's dialect for it: `create_async_engine(..., async_creator=...)`.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from runwatch_server.cancellation import result_of

T = TypeVar("T")


class SuspendedError(Exception):
    """A coroutine awaited something other than a direct connection."""


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only direct connections. Raises SuspendedError."""
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
    """A cursor of a threaded connection, which it reads through."""

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
        """Run a query in a thread, to its end even if the caller is cancelled: what it does next,
        which is to end the transaction, would otherwise find the connection in use."""
        loop = asyncio.get_running_loop()
        query = loop.run_in_executor(self._threads, self._query, sql, parameters)
        await result_of(query)

    def _query(self, sql: str, parameters: Sequence[Any]) -> None:
        self._cursor.execute(sql, parameters)
        self._rows = self._cursor.fetchall()

    async def fetchall(self) -> list[Any]:
        return self._rows


class DirectConnection:
    """A connection that is used by one thread at a time, not always by the same. Transactions are
    left to the caller: the driver begins none."""

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

    def ask(self, pragma: str) -> Any:
        """The first number or text that a pragma answers, outside of any transaction; None if it
        answers nothing."""
        row = self._conn.execute(f"PRAGMA {pragma}").fetchone()
        return None if row is None else row[0]

    def carry_out(self, pragma: str) -> None:
        """Run a pragma to its end: `ask` would take only the first of its steps."""
        self._conn.executescript(f"PRAGMA {pragma}")

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
    """A connection of a reader. Its queries run in threads; there must be a thread for each
    connection in use. Nothing else accesses the disk: statements before BEGIN only prepare the
    connection, BEGIN only notes that a transaction is wanted, and at its end there is nothing to
    undo."""

    def __init__(self, path: Path, threads: Executor) -> None:
        super().__init__(path)
        self._threads = threads

    def cursor(self) -> ThreadedCursor:
        return ThreadedCursor(self._conn, self._threads)
