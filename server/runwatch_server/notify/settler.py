"""The loop that releases the ends of alerts that have settled (`settling`)."""

import asyncio
import logging
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import AlertId, RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.notify import settling_queries
from runwatch_server.notify.settling import LONGEST_S
from runwatch_server.per_run_tasks import PerRunTasks

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0


class Settler:
    """A background task: `run` until cancelled. Dispatchers and pushers then send the ends."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._tasks = PerRunTasks("telling its ends")

    async def run(self) -> None:
        while True:
            try:
                await self.settle()
            except OverloadedError as error:  # the database is unavailable
                log.warning("ends that wait: %s; tried again", error)
            except Exception:  # settling must go on after a failed round
                log.exception("a look at the ends that wait failed; tried again")
            await asyncio.sleep(LOOK_EVERY_S)

    async def settle(self) -> None:
        now = self._clock.wall()
        async with self._database.read() as connection:
            found = await settling_queries.list_settled(connection, before=now - LONGEST_S)
        for run_id, alert_ids in found.items():
            await self._tasks.do(run_id, partial(self._settle_run, run_id, alert_ids))

    async def _settle_run(self, run_id: RunId, alert_ids: list[AlertId]) -> None:
        async def work(connection: AsyncConnection) -> None:
            now = self._clock.wall()
            await settling_queries.settle(connection, run_id, alert_ids, at=now)

        await self._database.write(work, of=run_id)
