"""A service of each test's own, on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.server.harness import Api, HandClock, serve


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def hand_clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def api(tmp_path: Path, hand_clock: HandClock) -> AsyncIterator[Api]:
    async with serve(tmp_path, clock=hand_clock) as api:
        yield api
