"""The interface of the database: reads, and writes that are answered once they are on disk."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.db.channel import Channel
from runwatch_server.db.group_writer import GroupWriter, Store, Work, WriteObserver
from runwatch_server.errors import DatabaseDamagedError, OverloadedError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Database:
    """An async context manager; closing it commits what is queued."""

    def __init__(
        self,
        store: Store,
        *,
        queue_works: int = 4096,
        observer: WriteObserver | None = None,
    ) -> None:
        self._store = store
        self._queue_works = queue_works
        self._writer = GroupWriter(store, observer)
        self._is_closing = False

    @property
    def engine(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._store.engine

    @property
    def is_shared(self) -> bool:
        """Whether other replicas write to it too."""
        return self._store.is_shared

    @property
    def place(self) -> str:
        """Where the data are, for display."""
        return self._store.place

    @property
    def num_waiting(self) -> int:
        """Number of works that no transaction has taken yet."""
        return self._writer.num_waiting

    @property
    def is_overloaded(self) -> bool:
        return self.num_waiting >= self._queue_works

    @property
    def is_losing(self) -> bool:
        """Whether a transaction was lost within the last minute, and none committed since."""
        return self._writer.is_losing

    async def __aenter__(self) -> "Database":
        await self._store.open()
        return self

    async def migrate(self, upgrade: Callable[[sa.Connection], None]) -> None:
        """Run the migrations, before anything else is written."""
        assert not self._writer.is_running, "migrations come before the first write"
        await self._store.migrate(upgrade)

    def start(self) -> None:
        """Start writing."""
        self._writer.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing = True
        await self._writer.stop()
        await self._store.close()

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection that sees one committed state and cannot write."""
        return self._store.read()

    async def ping(self) -> None:
        """Raises OverloadedError if the database does not answer, or has lost its file."""
        try:
            async with self.read() as connection:
                await connection.execute(sa.select(1))
            self._store.check()
        except (SQLAlchemyError, OSError, DatabaseDamagedError) as error:
            found = f"The database ({self.engine}) is gone or cannot be read: see the log."
            log.error("%s: found %s, wanted the database", self.place, error)
            raise OverloadedError("database_dead", found, retry_after_s=2) from error

    @property
    def channel(self) -> Channel | None:
        """The channel to other replicas; None if there can be none."""
        return self._store.channel

    @property
    def free_bytes(self) -> int:
        """Size of the space in its files that is free for new data; 0 if it is not known."""
        return self._store.free_bytes

    async def give_back(self) -> None:
        """Give the file system back what was freed by removals."""
        await self._store.give_back()

    async def find_damage(self) -> list[str]:
        """Descriptions of damaged data, as far as the engine can find it by itself. Reads
        everything."""
        return await self._store.find_damage()

    async def write(self, work: Work[T], *, of: RunId | None = None) -> T:
        """Run a work in a transaction; returns its result once it is on disk.

        `of` is the run that the work is about. Works about one run are executed one after another,
        on whichever replica, and so are works about what all runs share (None): each sees the
        results of all earlier ones.

        Raises what the work raises, after everything it wrote has been undone, and OverloadedError
        if too many works are waiting already. A work may run to its end although its caller has
        gone away.
        """
        if self._is_closing:
            raise OverloadedError("stopping", "The service is stopping.", retry_after_s=5)
        if self.is_overloaded:
            raise OverloadedError("writer_queue_full", f"{self.num_waiting} writes are waiting.")
        return await self._writer.put(work, of)
