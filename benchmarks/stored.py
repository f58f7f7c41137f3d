"""What a service has stored, read beside it: from the SQLite file, or from PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]
from benchmarks.harness import folder_bytes

from runwatch.vocabulary import RunId


class Stored(Protocol):
    """A database under measurement."""

    engine: str

    def num_judged(self) -> int:
        """Frames that the rules were held against."""
        ...

    def bodies(self, run_id: RunId) -> dict[int, bytes]:
        """A run's frames as they are stored, by sequence number."""
        ...

    def num_bytes(self) -> int:
        """On disk; to be asked when the service has stopped."""
        ...


class SqliteStored:
    """A data directory."""

    engine = "SQLite"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def num_judged(self) -> int:
        ((judged,),) = self._ask("SELECT coalesce(sum(evaluated_seq), 0) FROM evaluations")
        return int(judged)

    def bodies(self, run_id: RunId) -> dict[int, bytes]:
        return dict(self._ask("SELECT seq, body FROM frames WHERE run_id = ?", run_id))

    def num_bytes(self) -> int:
        return folder_bytes(self._data_dir)

    def _ask(self, statement: str, *values: object) -> list[Any]:
        path = next(self._data_dir.glob("*.db"))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(statement, values).fetchall()


class PostgresStored:
    """An empty database that the service is given."""

    engine = "PostgreSQL"

    def __init__(self, url: str) -> None:
        self._url = url
        self._bytes_before = self._size()

    def num_judged(self) -> int:
        found = self._ask("SELECT coalesce(sum(evaluated_seq), 0) FROM evaluations")
        return int(found[0][0])

    def bodies(self, run_id: RunId) -> dict[int, bytes]:
        rows = self._ask("SELECT seq, body FROM frames WHERE run_id = $1", run_id)
        return {row[0]: row[1] for row in rows}

    def num_bytes(self) -> int:
        """Tables and indexes, without what an empty database holds, and without the WAL."""
        return self._size() - self._bytes_before

    def _size(self) -> int:
        return int(self._ask("SELECT pg_database_size(current_database())")[0][0])

    def _ask(self, statement: str, *values: object) -> Sequence[Any]:
        driver: Any = asyncpg

        async def run() -> Sequence[Any]:
            connection = await driver.connect(self._url)
            try:
                rows: Sequence[Any] = await connection.fetch(statement, *values)
                return rows
            finally:
                await connection.close()

        return asyncio.run(run())
