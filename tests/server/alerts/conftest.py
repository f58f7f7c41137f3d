"""A service without its HTTP, started as often as a test likes on one data directory."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest
from tests.server.alerts.bench import Bench, HandClock, StartService, start
from tests.server.harness import Storage


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def start_service(storage: Storage, clock: HandClock) -> StartService:
    """Starts the service on the test's own data directory; again is a restart."""

    @asynccontextmanager
    async def life() -> AsyncGenerator[Bench]:
        async with AsyncExitStack() as stack:
            yield await start(stack, storage, clock)

    def begin() -> AbstractAsyncContextManager[Bench]:
        return life()

    return begin
