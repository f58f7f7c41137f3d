"""PostgreSQL under the writer: whose turn it is, what is undone, and what becomes of errors."""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.postgres import Postgres
from tests.waiting import LONGEST_S, until_so

from runwatch.vocabulary import RunId
from runwatch_server.db import Database, make_store, postgresql, postgresql_engine
from runwatch_server.db.locks import lock_number
from runwatch_server.db.postgresql import PostgresStore
from runwatch_server.db.postgresql_engine import PostgresAddress
from runwatch_server.db.postgresql_errors import Fate, fate_of
from runwatch_server.errors import (
    DatabaseUnreachableError,
    OverloadedError,
    SettingsError,
    UnprocessableError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]

T = TypeVar("T")

counters = sa.Table(
    "counters",
    sa.MetaData(),
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("value", sa.Integer, nullable=False),
)
RUN = RunId("RUN")


@pytest.fixture
async def replicas(postgres: Postgres) -> AsyncIterator[tuple[Database, Database]]:
    """Two, as two processes would be."""
    name = await asyncio.to_thread(postgres.create)
    async with (
        Database(PostgresStore(postgres.url(name))) as first,
        Database(PostgresStore(postgres.url(name))) as second,
    ):
        await first.migrate(counters.create)
        first.start()
        second.start()
        yield first, second
    await asyncio.to_thread(postgres.drop, name)


async def count_up(connection: AsyncConnection, run_id: str = RUN) -> int:
    """Read, then written: two at a time would lose one."""
    found = await connection.scalar(sa.select(counters.c.value).where(counters.c.run_id == run_id))
    row = {"run_id": run_id, "value": (found or 0) + 1}
    if found is None:
        await connection.execute(counters.insert(), row)
    else:
        await connection.execute(
            counters.update().where(counters.c.run_id == run_id).values(value=row["value"])
        )
    return found or 0


async def despite_overload(ask: Callable[[], Coroutine[None, None, T]]) -> T:
    """As a client asks that is told to come again."""
    async with asyncio.timeout(LONGEST_S):
        while True:
            try:
                return await ask()
            except OverloadedError:
                await asyncio.sleep(0.01)


async def test_works_about_one_run_come_one_after_another_on_all_replicas(
    replicas: tuple[Database, Database],
) -> None:
    works = [replicas[index % 2].write(count_up, of=RUN) for index in range(200)]

    assert sorted(await asyncio.gather(*works)) == list(range(200))


async def test_groups_of_the_same_runs_in_any_order_do_not_lock_each_other_out(
    replicas: tuple[Database, Database],
) -> None:
    runs = [f"RUN{index}" for index in range(20)]
    works = [
        database.write(partial(count_up, run_id=run), of=RunId(run))
        for database, order in zip(replicas, (runs, runs[::-1]), strict=True)
        for run in order * 5
    ]

    assert sum(await asyncio.gather(*works)) == 20 * sum(range(10))


async def test_a_work_that_fails_undoes_only_itself(replicas: tuple[Database, Database]) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await count_up(connection)
        raise ValueError("mine")

    results = await asyncio.gather(
        replicas[0].write(count_up, of=RUN),
        replicas[0].write(fail, of=RUN),
        replicas[0].write(count_up, of=RUN),
        return_exceptions=True,
    )

    assert results[0] == 0
    assert isinstance(results[1], ValueError)
    assert results[2] == 1


async def test_a_value_that_fits_no_column_is_the_senders_fault(
    replicas: tuple[Database, Database],
) -> None:
    row = {"run_id": RUN, "value": 2**40}

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(counters.insert(), row)

    with pytest.raises(UnprocessableError, match="cannot be stored"):
        await replicas[0].write(work, of=RUN)


async def test_a_zero_byte_in_a_text_is_the_senders_fault(
    replicas: tuple[Database, Database],
) -> None:
    with pytest.raises(UnprocessableError, match="cannot be stored"):
        await replicas[0].write(partial(count_up, run_id="a\0b"), of=RUN)


async def test_a_reader_cannot_write(replicas: tuple[Database, Database]) -> None:
    async with replicas[0].read() as connection:
        with pytest.raises(DBAPIError, match="read-only"):
            await count_up(connection)


async def test_connections_that_the_server_cut_are_replaced(
    replicas: tuple[Database, Database], postgres: Postgres
) -> None:
    await replicas[0].write(count_up, of=RUN)
    async with replicas[0].read() as connection:
        name = await connection.scalar(sa.select(sa.func.current_database()))

    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'runwatch' AND datname = current_database()"
    )
    await asyncio.to_thread(postgres.execute, cut, database=name)

    await despite_overload(replicas[0].ping)
    assert await despite_overload(partial(replicas[0].write, count_up, of=RUN)) == 1


class StandsStillOnce:
    """A work whose process is stopped, in its first try alone."""

    def __init__(
        self,
        *,
        goes_on: bool,
        is_prepared: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """It stands still after a statement, or with `is_prepared` before one that the driver has
        prepared. `goes_on`: whether another statement comes before the COMMIT."""
        self._goes_on = goes_on
        self._is_prepared = is_prepared
        self._on_begun = on_begun
        self.num_tries = 0

    async def work(self, connection: AsyncConnection) -> int:
        self._on_begun()
        self.num_tries += 1
        before = await count_up(connection)
        if self.num_tries == 1:
            await self._stand_still(connection)
        if self._goes_on:
            await connection.execute(sa.select(1))
        return before

    async def _stand_still(self, connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 20")
        if self._is_prepared:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            await driver.prepare("SELECT 1 + $1::int")
        time.sleep(1.0)


@pytest.mark.parametrize("goes_on", [True, False], ids=["with a statement", "with its COMMIT"])
async def test_a_transaction_that_was_cut_off_before_its_end_is_run_again(
    replicas: tuple[Database, Database], *, goes_on: bool
) -> None:
    stopped = StandsStillOnce(goes_on=goes_on)

    assert await replicas[0].write(stopped.work, of=RUN) == 0
    assert stopped.num_tries == 2
    assert await replicas[1].write(count_up, of=RUN) == 1


async def test_a_transaction_that_stands_still_in_the_midst_of_a_statement_is_run_again(
    replicas: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a statement that is prepared and not run yet PostgreSQL does not say that it is idle."""
    monkeypatch.setattr(postgresql_engine, "_LONGEST_WRITE", "SET transaction_timeout = '0.5s'")
    # Of the first try's connection alone: the next one may take as long as the machine does.
    stopped = StandsStillOnce(goes_on=True, is_prepared=True, on_begun=monkeypatch.undo)

    async with replicas[0].read() as connection:
        version = await connection.scalar(sa.text("SHOW server_version_num"))
    if int(version or 0) < 170000:
        pytest.skip("PostgreSQL has transaction_timeout since version 17")
    assert await replicas[1].write(stopped.work, of=RUN) == 0
    assert stopped.num_tries == 2


async def test_a_connection_that_is_cancelled_while_it_is_made_leaves_nothing_behind(
    postgres: Postgres,
) -> None:
    """Wherever on its way: the driver's own future would be heard of from the event loop."""
    heard: list[object] = []
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    address = PostgresAddress(postgres.url("postgres"))
    try:
        for num_turns in range(30):
            making = asyncio.create_task(address.connect())
            for _ in range(num_turns):
                await asyncio.sleep(0)
            making.cancel()
            with suppress(asyncio.CancelledError):
                (await making).terminate()
            del making
            await asyncio.sleep(0)
            gc.collect()
    finally:
        loop.set_exception_handler(usual)
    assert heard == []


def test_a_connection_that_was_cut_in_the_middle_of_something_is_a_database_that_is_away() -> None:
    state = "cannot switch to state 12; another operation (2) is in progress"

    assert fate_of(asyncpg.InternalClientError(state)) is Fate.LOST
    assert fate_of(asyncpg.InterfaceError("connection is closed")) is Fate.LOST
    assert fate_of(asyncpg.DataError("value out of int32 range")) is Fate.REFUSED


async def test_a_database_that_is_not_there_is_no_fault_of_the_request() -> None:
    store = PostgresStore("postgresql://nobody@127.0.0.1:1/nowhere")

    with pytest.raises(OverloadedError) as refused:
        async with store.read():
            pass

    assert refused.value.headers == {"Retry-After": "2"}


async def test_a_server_that_refuses_us_is_quoted_in_its_own_words(
    tmp_path: Path, postgres: Postgres
) -> None:
    database = Database(make_store(tmp_path, postgres.url("no_such_database")))

    with pytest.raises(DatabaseUnreachableError) as refused:
        async with database:
            pass

    assert ': found database "no_such_database" does not exist, wanted' in str(refused.value)


def test_a_url_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"found mysql://host/name, wanted postgresql://"):
        make_store(tmp_path, "mysql://host/name")


def test_the_place_is_shown_without_the_password() -> None:
    store = PostgresStore("postgresql://me:secret@db.example:5432/runwatch?sslmode=require")

    assert store.place == "postgresql://db.example:5432/runwatch"


async def test_connections_that_are_cut_as_soon_as_they_are_made_are_no_fault_of_a_work(
    replicas: tuple[Database, Database],
) -> None:
    def cut(*_: object) -> None:
        raise DisconnectionError("closed by the server")

    event.listen(sa.Pool, "checkout", cut)
    try:
        with pytest.raises(OverloadedError):
            await replicas[0].write(count_up, of=RUN)
        with pytest.raises(OverloadedError):
            await replicas[0].ping()
    finally:
        event.remove(sa.Pool, "checkout", cut)

    assert await replicas[0].write(count_up, of=RUN) == 0


async def test_a_work_that_fails_alone_leaves_its_connection_without_a_transaction(
    replicas: tuple[Database, Database],
) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await count_up(connection)
        raise ValueError("mine")

    for _ in range(5):
        with pytest.raises(ValueError, match="mine"):
            await replicas[0].write(fail, of=RUN)

    assert await replicas[1].write(count_up, of=RUN) == 0


@pytest.mark.parametrize("is_bounded", [True, False])
async def test_a_connection_keeps_itself_known_to_firewalls_while_it_waits(
    postgres: Postgres, is_bounded: bool
) -> None:
    connection = await PostgresAddress(postgres.url("postgres")).connect(is_bounded=is_bounded)
    peer = connection._transport.get_extra_info("socket")
    idle_s = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    is_on = peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await connection.close()

    assert (is_on, idle_s) == (1, 30)


@asynccontextmanager
async def session_that_holds(url: str, statement: str) -> AsyncGenerator[None]:
    """Another session, in whose open transaction the statement has been run."""
    session = await PostgresAddress(url).connect()
    await session.execute("SET idle_in_transaction_session_timeout = 0")
    await session.execute(f"BEGIN; {statement}")
    try:
        yield
    finally:
        await session.close()


@pytest.fixture
def impatient_upgrades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upgrades that try again, and say so, soon after they found a lock held."""
    monkeypatch.setattr(postgresql, "_MIGRATION_LOCKS", "SET LOCAL lock_timeout = '0.2s'")
    monkeypatch.setattr(postgresql, "_MIGRATION_PAUSE_S", 0.05)


async def url_of(replica: Database, postgres: Postgres) -> str:
    async with replica.read() as connection:
        name = await connection.scalar(sa.select(sa.func.current_database()))
    return postgres.url(str(name))


@pytest.mark.usefixtures("impatient_upgrades")
async def test_an_upgrade_that_waits_for_a_backup_lets_writes_through(
    replicas: tuple[Database, Database], postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = await url_of(replicas[0], postgres)
    newer = PostgresStore(url)
    async with session_that_holds(url, "LOCK TABLE counters IN ACCESS SHARE MODE"):
        upgrade = asyncio.create_task(newer.migrate(_widen))
        while caplog.text.count("one of them is in use") < 2:
            await replicas[0].write(count_up, of=RUN)
        assert not upgrade.done()
    await upgrade
    await newer.close()

    async with replicas[0].read() as connection:
        assert await connection.scalar(sa.text("SELECT count(note) FROM counters")) == 0


async def test_an_upgrade_takes_as_long_as_its_tables_are_large(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_engine, "_COMMAND_S", 0.2)
    name = await asyncio.to_thread(postgres.create)
    store = PostgresStore(postgres.url(name))

    def take_long(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_sleep(0.6)"))

    await store.migrate(take_long)

    await store.close()
    await asyncio.to_thread(postgres.drop, name)


@pytest.mark.usefixtures("impatient_upgrades")
async def test_a_replica_waits_for_one_that_upgrades_the_tables(
    replicas: tuple[Database, Database], postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = await url_of(replicas[0], postgres)
    second = PostgresStore(url)
    lock = f"SELECT pg_advisory_xact_lock({lock_number('migration')})"
    async with session_that_holds(url, lock):
        upgrade = asyncio.create_task(second.migrate(_widen))
        await until_so(lambda: caplog.text.count("another replica is at it") >= 2)
        assert not upgrade.done()
    await upgrade
    await second.close()


def _widen(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE counters ADD COLUMN note text"))
