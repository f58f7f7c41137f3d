"""A service of each test's own, on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.server.harness import Api, HandClock, Storage, open_database, serve

from runwatch_server.db import Database


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def hand_clock() -> HandClock:
    return HandClock()


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The database's engine; `both_engines` runs a test on each."""
    return getattr(request, "param", "sqlite")


@pytest.fixture
def storage(tmp_path: Path, engine: str, request: pytest.FixtureRequest) -> Storage:
    """Where one service after another finds what the last one left."""
    url = request.getfixturevalue("postgres_url") if engine == "postgresql" else None
    return Storage(tmp_path, url)


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock) as api:
        yield api


@pytest.fixture
async def database(storage: Storage) -> AsyncIterator[Database]:
    async with open_database(storage) as database:
        yield database
