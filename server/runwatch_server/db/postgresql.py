"""PostgreSQL: several replicas write, each in several transactions at a time.

Works about one run must see each other's results, which SQLite's single writer guarantees anyway.
Here a transaction first takes a lock for each run that its works are about, in one global order,
and holds them until its end: READ COMMITTED then shows each work everything before it. The locks
are PostgreSQL's own (`pg_advisory_xact_lock`), which are freed with the transaction however its
process ends. A transaction whose process is paused is cut off by
`idle_in_transaction_session_timeout`, and run again when the process continues.

The cost here is in round trips, each of which takes a turn of the event loop and of another
process. So a transaction begins and takes its locks in one round trip, and its works run without
savepoints. Only if one of them fails is everything undone and run again, each work in a savepoint
of its own.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from runwatch_server.db.group_writer import Order, Outcome
from runwatch_server.db.locks import lock_number, wait_for_lock
from runwatch_server.db.postgresql_channel import PostgresChannel
from runwatch_server.db.postgresql_engine import (
    PostgresAddress,
    connect_writer,
    make_engine,
    migrating_engine,
)
from runwatch_server.db.postgresql_errors import Fate, answer_of, fate_of, sqlstate, words_of
from runwatch_server.errors import DatabaseUnreachableError, OverloadedError

log = logging.getLogger(__name__)

_NUM_LANES: Final = 4
"""While one transaction waits for the disk, others run."""
_NUM_READERS: Final = 8
_TRIES: Final = 5
"""Attempts at a transaction that PostgreSQL undid because of another one, or cut off."""
_RETRY_S: Final = 0.02
_PATIENCE_S: Final = 30.0
"""Seconds to wait for a database that is being started."""
_MIGRATION_LOCKS: Final = "SET LOCAL lock_timeout = '5s'"
_MIGRATION_PAUSE_S: Final = 10.0
_LOCK_NOT_AVAILABLE: Final = "55P03"
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    " SELECT pg_advisory_xact_lock(number) FROM unnest('{{{numbers}}}'::bigint[]) AS number"
)


class _RefusedError(Exception):
    """A work failed through its own fault, and not the database's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _CutOffError(OSError):
    """The connection was lost before the COMMIT, so nothing of the transaction was stored."""


_RunOrders = Callable[[AsyncConnection, Sequence[Order]], Awaitable[list[Outcome]]]


class PostgresStore:
    """A database that several replicas share."""

    engine = "postgresql"
    num_lanes = _NUM_LANES
    is_shared = True

    def __init__(self, url: str) -> None:
        self.address = PostgresAddress(url)
        self._channel = PostgresChannel(self.address)
        self._writers: AsyncEngine = make_engine(
            self.address,
            num_connections=_NUM_LANES,
            isolation_level="AUTOCOMMIT",  # `_transaction` begins and ends its own
            connect=partial(connect_writer, self.address),
        )
        self._readers: AsyncEngine = make_engine(
            self.address,
            num_connections=_NUM_READERS,
            isolation_level="REPEATABLE READ",
            execution_options={"postgresql_readonly": True},
        )

    @property
    def place(self) -> str:
        return self.address.shown

    async def open(self) -> None:
        """Raises DatabaseUnreachableError."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                async with self.read() as connection:
                    await connection.execute(sa.select(1))
                return
            except OverloadedError as error:
                why = words_of(error.__cause__ or error)
                if asyncio.get_running_loop().time() > deadline:
                    raise DatabaseUnreachableError(self.place, why) from error
                log.info("%s does not answer yet (%s)", self.place, why)
                await asyncio.sleep(1.0)
            except Exception as error:
                raise DatabaseUnreachableError(self.place, words_of(error)) from error

    async def close(self) -> None:
        await self._channel.close()
        await self._readers.dispose()
        await self._writers.dispose()

    async def migrate(self, upgrade: Callable[[sa.Connection], None]) -> None:
        """Run the migrations on one replica, while others wait for it. What it changes may be in
        use for long, as by pg_dump. A migration that waits for that blocks everybody who comes
        later, including the frames of replicas that go on. So it waits in short spells, and lets
        them through in between."""
        engine = migrating_engine(self.address)
        try:
            while kept_by := await _try_to_migrate(engine, upgrade):
                log.warning(
                    "the upgrade of the tables waits: %s; it is tried again in %.0f s",
                    kept_by,
                    _MIGRATION_PAUSE_S,
                )
                await asyncio.sleep(_MIGRATION_PAUSE_S)
        finally:
            await engine.dispose()

    @property
    def channel(self) -> PostgresChannel:
        return self._channel

    @property
    def free_bytes(self) -> int:
        return 0

    def check(self) -> None:
        """Does nothing: the server sees to its files."""

    async def give_back(self) -> None:
        """Does nothing: autovacuum makes the room usable again."""

    async def find_damage(self) -> list[str]:
        """Finds nothing: use PostgreSQL's own pg_amcheck to check tables and indexes."""
        return []

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Raises OverloadedError if the database does not answer."""
        return self._read()

    @asynccontextmanager
    async def _read(self) -> AsyncGenerator[AsyncConnection]:
        try:
            async with _connected(self._readers) as connection:
                yield connection
        except Exception as error:
            if fate_of(error) is not Fate.REFUSED:
                raise OverloadedError(
                    "database_unreachable", "The database does not answer.", retry_after_s=2
                ) from error
            raise answer_of(error) from error.__cause__

    async def commit(self, lane: int, orders: Sequence[Order]) -> list[Outcome]:
        try:
            try:
                return await self._run_all(orders, _together)
            except _RefusedError as refused:
                if len(orders) == 1:
                    return [Outcome(error=answer_of(refused.error))]
            return await self._run_all(orders, _each_apart)
        except Exception as error:
            raise _as_loss(error) from error

    async def _run_all(self, orders: Sequence[Order], run: _RunOrders) -> list[Outcome]:
        """Run works in one transaction, and again if it is certain that nothing of it was
        stored."""
        for num_tries in range(1, _TRIES + 1):
            try:
                async with self._transaction(orders) as connection:
                    return await run(connection, orders)
            except Exception as error:
                is_undone = isinstance(error, _CutOffError) or fate_of(error) is Fate.UNDONE
                if not is_undone or num_tries == _TRIES:
                    raise
            await asyncio.sleep(_RETRY_S * num_tries)
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def _transaction(self, orders: Sequence[Order]) -> AsyncGenerator[AsyncConnection]:
        """A transaction that holds the locks of the runs. They are taken in the same order
        everywhere, so that two transactions never wait for each other. Committed at the end, undone
        by an error. Raises _CutOffError."""
        numbers = sorted({lock_number(order.of or "") for order in orders})
        async with _connected(self._writers) as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            try:
                with _cut_off_reported(driver):
                    await driver.execute(_BEGIN.format(numbers=",".join(map(str, numbers))))
                    yield connection
                await driver.execute("COMMIT")
            except BaseException:
                await _undo(connection, driver)
                raise


async def _try_to_migrate(engine: AsyncEngine, upgrade: Callable[[sa.Connection], None]) -> str:
    """Try to migrate; returns what took too long, in which case nothing was changed, or an empty
    text when it is done."""
    kept_by = "another replica is at it"
    try:
        async with engine.begin() as connection:
            await connection.execute(sa.text(_MIGRATION_LOCKS))
            if int(await connection.scalar(sa.text("SHOW server_version_num"))) >= 170000:
                await connection.execute(sa.text("SET LOCAL transaction_timeout = 0"))
            await wait_for_lock(connection, "migration")
            kept_by = "one of them is in use, as by a backup"
            await connection.run_sync(upgrade)
    except DBAPIError as error:
        if sqlstate(error) != _LOCK_NOT_AVAILABLE:
            raise
        return kept_by
    return ""


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
    """Raises OSError, or what the driver raises, if no connection can be made."""
    connection = engine.connect()
    try:
        await connection.start()
    except InvalidRequestError as error:  # of the pool: closed again right away
        raise ConnectionError(str(error)) from error
    try:
        yield connection
    finally:
        await asyncio.shield(connection.close())


@contextmanager
def _cut_off_reported(driver: Any) -> Generator[None]:
    """Raises _CutOffError if the connection is lost within it, even if nothing has noticed that
    yet."""
    try:
        yield
    except Exception as error:
        if driver.is_closed():
            raise _CutOffError(f"cut off: {error}") from error
        raise
    if driver.is_closed():
        raise _CutOffError("cut off before the COMMIT")


async def _undo(connection: AsyncConnection, driver: Any) -> None:
    """End a transaction, or else its connection, so that nobody gets one with an open
    transaction."""
    try:
        await driver.execute("ROLLBACK")
    except BaseException as error:
        await connection.invalidate()
        if not isinstance(error, Exception):
            raise


async def _together(connection: AsyncConnection, orders: Sequence[Order]) -> list[Outcome]:
    """Run all works without savepoints. Raises _RefusedError if one of them fails through its own
    fault."""
    outcomes: list[Outcome] = []
    for order in orders:
        try:
            outcomes.append(Outcome(result=await order.work(connection)))
        except Exception as error:
            if fate_of(error) is not Fate.REFUSED:
                raise
            raise _RefusedError(error) from error
    return outcomes


async def _each_apart(connection: AsyncConnection, orders: Sequence[Order]) -> list[Outcome]:
    return [await _run(connection, order) for order in orders]


async def _run(connection: AsyncConnection, order: Order) -> Outcome:
    """Run a work in a savepoint, which a failure undoes. Raises errors that cost the whole
    transaction."""
    try:
        async with connection.begin_nested():
            return Outcome(result=await order.work(connection))
    except Exception as error:
        if fate_of(error) is not Fate.REFUSED:
            raise
        return Outcome(error=answer_of(error))


def _as_loss(error: Exception) -> Exception:
    """The error as one that says that nothing was committed, as far as is known."""
    if isinstance(error, SQLAlchemyError | OSError):
        return error
    return OSError(f"the database does not answer: {error}")
