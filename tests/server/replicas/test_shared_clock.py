"""Replicas tell the database's time, however wrong their machines' clocks are."""

import time

import pytest
from tests.server.harness import HandClock

from runwatch_server.db import Database
from runwatch_server.db.postgresql import PostgresStore
from runwatch_server.replicas.shared_clock import SharedClock

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]

_NEAR_S = 60.0
"""The machine's own clock is the database's here, and the test may be kept waiting."""


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_a_clock_that_is_wrong_or_is_set_is_corrected(
    postgres_url: str, ahead_s: float
) -> None:
    own = HandClock(time.time() + ahead_s)
    async with Database(PostgresStore(postgres_url)) as database:
        shared = SharedClock(database, own.clock())
        await shared.measure()
        assert abs(shared.clock.wall() - time.time()) < _NEAR_S

        own.now += 7200.0
        await shared.measure()
        assert abs(shared.clock.wall() - time.time()) < _NEAR_S
