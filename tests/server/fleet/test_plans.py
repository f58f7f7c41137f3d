"""The overview of all runs reads as little of each as it can."""

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.plans import plan_of

from runwatch_server.db import Database
from runwatch_server.fleet.queries import count_fleet, list_fleet
from runwatch_server.fleet.records import FleetFilter

pytestmark = pytest.mark.anyio


async def read_list(connection: AsyncConnection) -> None:
    await list_fleet(connection, FleetFilter(), limit=10)


async def read_counts(connection: AsyncConnection) -> None:
    await count_fleet(connection, FleetFilter())


@pytest.mark.parametrize("ask", [read_list, read_counts])
async def test_what_ended_runs_left_is_read_from_its_index(
    database: Database, ask: Callable[[AsyncConnection], Awaitable[object]]
) -> None:
    found = await plan_of(database, ask)

    assert "SCAN alerts USING INDEX ix_alerts_left" in found
    assert [step for step in found if "attempts USING INDEX" in step] == []
