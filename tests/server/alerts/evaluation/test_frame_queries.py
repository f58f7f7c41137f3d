"""Frames that nobody has judged are looked for without reading what ended long ago."""

import asyncio

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.alerts.bench import RUN, Bench, StartService, healthy
from tests.server.plans import plan_of

from runwatch_server.alerts.evaluation.frame_queries import (
    StreamBehind,
    list_behind,
    list_behind_of_going_on,
)
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.runs.tables import runs


async def leave_unjudged(bench: Bench) -> None:
    """A frame that waits for the one before it."""
    await bench.open()
    await bench.send(healthy(10), first_step=10, seq=2)


async def end_run(connection: AsyncConnection) -> None:
    await connection.execute(sa.update(runs).values(state="finished"))


def test_only_runs_that_go_on_are_looked_through(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            found = await plan_of(bench.database, list_behind_of_going_on)

            assert [step for step in found if step.startswith("SCAN")] == []
            assert "SEARCH streams USING INDEX sqlite_autoindex_streams_1 (run_id=?)" in found

    asyncio.run(scenario())


def test_a_run_is_looked_at_for_as_long_as_it_goes_on(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await leave_unjudged(bench)
            async with bench.database.read() as connection:
                assert await list_behind_of_going_on(connection) == [
                    StreamBehind(RUN, StreamKey(1, 0), 2)
                ]

            await bench.database.write(end_run)

            async with bench.database.read() as connection:
                assert await list_behind_of_going_on(connection) == []
                assert await list_behind(connection) == [StreamBehind(RUN, StreamKey(1, 0), 2)]

    asyncio.run(scenario())
