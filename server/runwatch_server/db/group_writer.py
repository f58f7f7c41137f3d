"""Writes in groups: works that wait at the same time share one transaction, and so one flush to
disk.

A work that fails undoes only itself, and an answer is never given before it is on disk.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.db.channel import Channel
from runwatch_server.db.write_losses import WriteLosses
from runwatch_server.errors import OverloadedError

T = TypeVar("T")
Work = Callable[[AsyncConnection], Coroutine[Any, Any, T]]
"""A function that runs in one transaction. It awaits nothing but its connection, and may be run
more than once before its result is returned; so all its effects must be in the database."""

_MAX_GROUP: Final = 64
"""Most works in one transaction: limits how long a caller waits for the works of others."""


@dataclass(frozen=True, slots=True)
class Order:
    """A work and the run that it is about; None: about what all runs share."""

    work: Work[Any]
    of: RunId | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a work: its result, or the error that undid it."""

    result: Any = None
    error: BaseException | None = None


class Store(Protocol):
    """The interface of an engine: SQLite or PostgreSQL."""

    engine: str
    """`sqlite` or `postgresql`."""
    num_lanes: int
    """Number of groups that may be committed at a time; works about one run are always in the same
    lane."""
    is_shared: bool
    """Whether other replicas write to it too."""

    @property
    def place(self) -> str:
        """Where the data are, for display, without a password."""
        ...

    async def open(self) -> None:
        """Open the store. Raises a RunwatchError if nothing can be stored there."""
        ...

    async def close(self) -> None: ...

    async def migrate(self, upgrade: Callable[[sa.Connection], None]) -> None:
        """Run the migrations, before the first write."""
        ...

    @property
    def channel(self) -> Channel | None:
        """The channel to other replicas; None if there can be none."""
        ...

    @property
    def free_bytes(self) -> int:
        """Size of the space in its files that is free for new data; 0 if it is not known."""
        ...

    def check(self) -> None:
        """Raises OSError if what is written would be lost, as far as that can be seen at once."""
        ...

    async def give_back(self) -> None:
        """Give the file system back what was freed, as far as the engine does not do so itself."""
        ...

    async def find_damage(self) -> list[str]:
        """Descriptions of damaged data, as far as the engine can find it by itself."""
        ...

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection that sees one committed state and cannot write."""
        ...

    async def commit(self, lane: int, orders: Sequence[Order]) -> list[Outcome]:
        """Run works in one transaction; one that fails is undone alone. Returns once the
        transaction is on disk; raises SQLAlchemyError or OSError if it is not."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    order: Order
    done: "asyncio.Future[T]"

    def resolve(self, outcome: Outcome) -> None:
        if self.done.done():  # the caller went away, but the work was committed
            return
        if outcome.error is not None:
            self.done.set_exception(outcome.error)
        else:
            self.done.set_result(outcome.result)


class WriteObserver(Protocol):
    """Is notified of what the writer does."""

    def observe_commit(self, *, num_works: int, seconds: float) -> None: ...


class GroupWriter:
    """A queue and a task for each lane."""

    def __init__(self, store: Store, observer: WriteObserver | None) -> None:
        self._store = store
        self._observer = observer
        self._queues: list[asyncio.Queue[_Waiting[Any] | None]] = [
            asyncio.Queue() for _ in range(store.num_lanes)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._losses = WriteLosses()

    @property
    def is_losing(self) -> bool:
        """Whether transactions are being lost, for all that is known."""
        return self._losses.is_losing

    @property
    def num_waiting(self) -> int:
        return sum(queue.qsize() for queue in self._queues)

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._write_groups(lane), name=f"database writer {lane}")
            for lane in range(len(self._queues))
        ]

    async def stop(self) -> None:
        """Commit what is queued and stop."""
        for queue in self._queues:
            queue.put_nowait(None)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def put(self, work: Work[T], of: RunId | None) -> "asyncio.Future[T]":
        """Raises OverloadedError if the lane's task was cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane = 0 if of is None else zlib.crc32(of.encode()) % len(self._queues)
        if self._tasks and self._tasks[lane].done():
            raise OverloadedError("stopping", "The service is stopping.", retry_after_s=5)
        self._queues[lane].put_nowait(_Waiting(Order(work, of), done))
        return done

    async def _write_groups(self, lane: int) -> None:
        try:
            await self._write_until_closed(lane)
        except asyncio.CancelledError as error:  # nobody would ever answer those who wait
            queue = self._queues[lane]
            left = [queue.get_nowait() for _ in range(queue.qsize())]
            _reject_all([waiting for waiting in left if waiting is not None], error)
            raise

    async def _write_until_closed(self, lane: int) -> None:
        queue = self._queues[lane]
        is_open = True
        while is_open:
            group: list[_Waiting[Any]] = []
            waiting = await queue.get()
            while waiting is not None:
                group.append(waiting)
                if len(group) >= _MAX_GROUP or queue.empty():
                    break
                waiting = queue.get_nowait()
            is_open = waiting is not None
            if group:
                await self._commit(lane, group)

    async def _commit(self, lane: int, group: Sequence[_Waiting[Any]]) -> None:
        started = time.perf_counter()
        try:
            outcomes = await self._store.commit(lane, [waiting.order for waiting in group])
        except Exception as error:  # noqa: BLE001 - the lane must go on whatever the error
            is_foreseen = isinstance(error, SQLAlchemyError | OSError)
            self._losses.lost(len(group), error, is_foreseen=is_foreseen)
            _reject_all(group, error)
            return
        except asyncio.CancelledError as error:
            _reject_all(group, error)
            raise
        self._losses.committed()
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.resolve(outcome)
        if self._observer is not None:
            self._observer.observe_commit(
                num_works=len(group), seconds=time.perf_counter() - started
            )


def _reject_all(group: Sequence[_Waiting[Any]], error: BaseException) -> None:
    for waiting in group:
        failure = OverloadedError("not_committed", "The database did not commit.")
        failure.__cause__ = error
        waiting.resolve(Outcome(error=failure))
