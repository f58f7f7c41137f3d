"""Updates the stored states of runs from their liveness, on the monotonic clock.

This is a plain loop because APScheduler sleeps by the wall clock: in a trial it slept an hour when
that was set back.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from runwatch.vocabulary import RunState
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.replicas.ownership import Ownership
from runwatch_server.runs import queries
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.queries import OpenRun
from runwatch_server.runs.removals import Removals
from runwatch_server.runs.states import judge_state

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0


class RunWatcher:
    """A background task: `run` until cancelled."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        liveness: Liveness,
        *,
        ownership: Ownership,
        removals: Removals,
        stall_s: float,
        lost_s: float,
    ) -> None:
        self._database = database
        self._clock = clock
        self._liveness = liveness
        self._ownership = ownership
        self._removals = removals
        self._tasks = PerRunTasks("noting its state")
        self._stall_s = stall_s
        self._lost_s = lost_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self.tick()
            except OverloadedError as error:  # tried again in the next tick
                log.warning("states of runs were not written: %s", error)

    async def tick(self) -> None:
        """Writes the states that have changed."""
        known = self._liveness.run_ids()
        async with self._database.read() as connection:
            open_runs = await queries.list_open_runs(connection)
        self._removals.detect_replaced(open_runs)
        now = self._clock.monotonic()
        self._liveness.follow(known, {run.id: run.current_attempt for run in open_runs}, now=now)
        for run in open_runs:
            if not self._ownership.owns(run.id):
                continue
            state = judge_state(
                self._liveness.facts(run.id, now=now),
                stall_s=self._stall_s,
                lost_s=self._lost_s,
                known=run.state,
            )
            if state is not run.state:
                await self._tasks.do(run.id, partial(self._write, run, state))

    async def _write(self, found: OpenRun, state: RunState) -> None:
        at = self._clock.wall()
        work = partial(queries.change_state, found=found, state=state, at=at)
        await self._database.write(work, of=found.id)
        log.info("run %s: %s -> %s", found.id, found.state, state)
