"""SQLite as a driver for asyncio that does its work in the thread that awaits it.

aiosqlite hands each call to a thread of its own: four hops a statement, which took more of the
writer's time than SQLite did. Here nothing ever suspends, so a coroutine over such a connection
can be run from its start to its end in any one thread. It has the face of aiosqlite, as far as
SQLAlchemy's dialect for it looks: `create_async_engine(..., async_creator=...)`.
"""

import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
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
