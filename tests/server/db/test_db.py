"""The writer: groups, savepoints, and what is told when."""

import asyncio
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.waiting import LONGEST_S

from runwatch_server.db import Database, SqliteStore
from runwatch_server.db.direct_sqlite import DirectConnection, SuspendedError
from runwatch_server.db.sqlite import DATABASE_FILE
from runwatch_server.errors import DataDirError, DataDirInUseError, OverloadedError

pytestmark = pytest.mark.anyio

numbers = sa.Table("numbers", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


async def opened(database: Database) -> Database:
    await database.migrate(numbers.create)
    database.start()
    return database


async def insert(connection: AsyncConnection, number: int) -> int:
    await connection.execute(numbers.insert().values(number=number))
    return number


async def stored(database: Database) -> set[int]:
    async with database.read() as connection:
        return set(await connection.scalars(sa.select(numbers.c.number)))


class Commits:
    """Counts works by commit."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def observe_commit(self, *, num_works: int, seconds: float) -> None:
        self.groups.append(num_works)


async def test_works_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    commits = Commits()
    async with Database(SqliteStore(tmp_path), observer=commits) as database:
        await opened(database)

        works = [database.write(partial(insert, number=n)) for n in range(100)]
        results = await asyncio.gather(*works)

        assert results == list(range(100))
        assert await stored(database) == set(range(100))
        assert commits.groups == [64, 36]


async def test_a_work_that_fails_undoes_only_itself(tmp_path: Path) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await insert(connection, 2)
        raise ValueError("mine")

    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)

        results = await asyncio.gather(
            database.write(lambda c: insert(c, 1)),
            database.write(fail),
            database.write(lambda c: insert(c, 3)),
            return_exceptions=True,
        )

        assert results[0] == 1
        assert isinstance(results[1], ValueError)
        assert await stored(database) == {1, 3}


async def test_a_work_that_has_a_transaction_for_itself_and_fails_leaves_nothing(
    tmp_path: Path,
) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await insert(connection, 2)
        raise ValueError("mine")

    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)

        with pytest.raises(ValueError, match="mine"):
            await database.write(fail)
        await database.write(lambda c: insert(c, 3))

        assert await stored(database) == {3}


async def test_nothing_is_acknowledged_into_a_file_that_was_moved_away(tmp_path: Path) -> None:
    """SQLite goes on writing into a file that has lost its name, and whoever starts next finds
    nothing of it."""
    path, away = tmp_path / DATABASE_FILE, tmp_path / "away.db"
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        await database.write(lambda c: insert(c, 1))

        path.rename(away)
        with pytest.raises(OverloadedError, match="did not commit"):
            await database.write(lambda c: insert(c, 2))
        path.touch()
        with pytest.raises(OverloadedError, match="did not commit"):
            await database.write(lambda c: insert(c, 3))

        away.replace(path)
        await database.write(lambda c: insert(c, 4))
        assert await stored(database) >= {1, 4}


async def test_a_file_that_was_replaced_before_the_first_write_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        path.rename(tmp_path / "away.db")
        path.touch()

        with pytest.raises(OverloadedError, match="did not commit"):
            await database.write(lambda c: insert(c, 1))


async def test_a_work_that_awaits_something_else_fails_alone(tmp_path: Path) -> None:
    async def dawdle(connection: AsyncConnection) -> None:
        await insert(connection, 2)
        await asyncio.sleep(0)

    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)

        results = await asyncio.gather(
            database.write(lambda c: insert(c, 1)),
            database.write(dawdle),
            database.write(lambda c: insert(c, 3)),
            return_exceptions=True,
        )

        assert isinstance(results[1], SuspendedError)
        assert await stored(database) == {1, 3}


async def test_what_is_queued_when_it_closes_is_committed(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        waiting = asyncio.create_task(database.write(lambda c: insert(c, 7)))
        await asyncio.sleep(0)

    assert await waiting == 7
    async with Database(SqliteStore(tmp_path)) as database:
        assert await stored(database) == {7}


async def test_a_full_queue_says_come_again(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path), queue_works=1) as database:
        await opened(database)
        first = asyncio.create_task(database.write(lambda c: insert(c, 1)))
        await asyncio.sleep(0)

        with pytest.raises(OverloadedError) as refused:
            await database.write(lambda c: insert(c, 2))

        assert refused.value.headers == {"Retry-After": "1"}
        assert await first == 1


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)

        async with database.read() as connection:
            with pytest.raises(DatabaseError, match="readonly"):
                await insert(connection, 1)


def test_a_reader_that_is_cancelled_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever on its way it is cancelled; it would fail once the event loop is gone."""
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    async def cancel_after(moment_s: float, folder: Path) -> None:
        async with Database(SqliteStore(folder)) as database:
            reading = [asyncio.create_task(database.ping()) for _ in range(4)]
            await asyncio.sleep(moment_s)
            for one in reading:
                one.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    for index in range(120):
        asyncio.run(cancel_after(0.0001 * index, tmp_path / str(index)))

    assert failed == []


async def test_a_query_keeps_the_event_loop_waiting_for_nothing(tmp_path: Path) -> None:
    """It runs in a thread of the readers, and its transaction is begun and ended beside it."""
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        async with database.read() as connection:
            await add_function(connection, "of_thread", lambda: threading.current_thread().name)

            name = await connection.scalar(sa.text("SELECT of_thread()"))

    assert str(name).startswith("database reader")


async def test_a_query_that_is_cancelled_runs_to_its_end_before_its_connection_is_given_back(
    tmp_path: Path,
) -> None:
    began, may_end = threading.Event(), threading.Event()

    def dawdle() -> None:
        began.set()
        may_end.wait(LONGEST_S)

    async def read_slowly() -> None:
        async with database.read() as connection:
            await add_function(connection, "dawdle", dawdle)
            await connection.scalar(sa.text("SELECT dawdle()"))

    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        reading = asyncio.create_task(read_slowly())
        assert await asyncio.to_thread(began.wait, LONGEST_S)

        for _ in range(2):  # as a service that stops does with what does not end soon
            reading.cancel()
            done, _ = await asyncio.wait([reading], timeout=0.05)
            assert not done
        may_end.set()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert await stored(database) == set()


async def test_if_the_writer_is_cancelled_writes_fail_instead_of_waiting(tmp_path: Path) -> None:
    """As `asyncio.run` cancels all tasks at once when a program ends by an error. The end of the
    service, which is not cut short by that, would otherwise wait forever."""
    async with asyncio.timeout(60.0), Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        (writer,) = (one for one in asyncio.all_tasks() if one.get_name() == "database writer 0")
        waiting = asyncio.create_task(database.write(partial(insert, number=1)))
        await asyncio.sleep(0)
        writer.cancel()

        with pytest.raises(OverloadedError):
            await waiting
        with pytest.raises(OverloadedError):
            await database.write(partial(insert, number=2))


async def add_function(
    connection: AsyncConnection, name: str, function: Callable[[], object]
) -> None:
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, DirectConnection)
    await driver.create_function(name, 0, function)


async def test_a_second_service_on_the_directory_is_refused(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)):
        with pytest.raises(DataDirInUseError, match="in use by process"):
            async with Database(SqliteStore(tmp_path)):
                pass


async def test_the_database_syncs_each_commit(tmp_path: Path) -> None:
    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)

        async def pragmas(connection: AsyncConnection) -> tuple[object, object]:
            mode = await connection.scalar(sa.text("PRAGMA journal_mode"))
            return mode, await connection.scalar(sa.text("PRAGMA synchronous"))

        assert await database.write(pragmas) == ("wal", 2)


async def test_a_data_directory_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(DataDirError, match=r"file/data: found Not a directory, wanted a folder"):
        async with Database(SqliteStore(file / "data")):
            pass


@pytest.mark.parametrize("was_there", [False, True])
async def test_the_database_is_its_owners_alone_in_a_folder_that_others_read(
    tmp_path: Path, was_there: bool
) -> None:
    tmp_path.chmod(0o755)
    names = ["lock", DATABASE_FILE, f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-shm"]
    for name in names if was_there else []:
        (tmp_path / name).touch(0o644)

    async with Database(SqliteStore(tmp_path)) as database:
        await opened(database)
        await database.write(partial(insert, number=1))

        assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names] == [0o600] * 4
