"""Jobs of maintenance: what is said of one that the service's stop cuts short."""

import asyncio
import logging
from dataclasses import replace

import pytest
from tests.server.harness import Api
from tests.waiting import until_so

from runwatch_server.maintenance import Maintenance
from runwatch_server.runs.lost_runs import LostRuns
from runwatch_server.telemetry.roller import Roller

pytestmark = pytest.mark.anyio


class EndlessRoller(Roller):
    """Has begun, and does not come to an end by itself."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_over = False

    async def roll(self) -> int:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_over = True
        return 0


async def test_a_job_that_a_stop_cuts_short_is_no_error(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    services, roller = api.services, EndlessRoller()
    maintenance = Maintenance(
        replace(services.settings, rollup_every_s=0.01),
        services.clock,
        services.database,
        roller=roller,
        packer=None,
        retention=services.retention,
        lost_runs=LostRuns(services.database, services.clock, lost_days=7),
        save_uses=services.keys.save_uses,
        replica=services.replica,
    )
    running = asyncio.create_task(maintenance.run())
    await roller.has_begun.wait()

    running.cancel()
    await until_so(lambda: roller.is_over)

    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
