"""Ends runs that nobody closed and from which nothing has come for days: their data would stay for
ever, and so would what is held of them in memory and their open alerts."""

import logging
from functools import partial
from typing import Final

from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.runs import queries

log = logging.getLogger(__name__)

_DAY_S: Final = 86_400.0


class LostRuns:
    def __init__(self, database: Database, clock: Clock, *, lost_days: float) -> None:
        """A run ends once it was lost for `lost_days`; 0: never."""
        self._database = database
        self._clock = clock
        self._lost_days = lost_days
        self._tasks = PerRunTasks("ending it, as it is lost,")

    async def end_old(self) -> int:
        """End those that have been lost for long enough; returns how many."""
        if not self._lost_days:
            return 0
        now = self._clock.wall()
        before = now - self._lost_days * _DAY_S
        async with self._database.read() as connection:
            found = await queries.list_given_up(connection, before=before)
        reason = f"nothing was heard from it for {self._lost_days:g} days"
        num_ended = 0
        for run_id in found:
            end = partial(queries.end_given_up, run_id=run_id, before=before, at=now, reason=reason)
            work = partial(self._database.write, end, of=run_id)
            if await self._tasks.do(run_id, work):
                log.info("run %s: failed (%s)", run_id, reason)
                num_ended += 1
        return num_ended
