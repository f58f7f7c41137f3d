"""Sees that the service itself was paused (stopped, migrated, starved): that time is nobody's
silence, and every deadline is moved by it.

A loop of its own, which does nothing else: one that works is late by its own work, such as the half
minute that it waited for a reader of the database, in which the service listened all the same.
"""

import asyncio
import logging

from runwatch_server.clock import Clock
from runwatch_server.runs.liveness import BEAT_S, Liveness

log = logging.getLogger(__name__)


class PauseWatch:
    """A background task: `run` until cancelled."""

    def __init__(self, clock: Clock, liveness: Liveness) -> None:
        self._clock = clock
        self._liveness = liveness

    async def run(self) -> None:
        while True:
            self.beat()  # first, or a pause before the first sleep is over would be seen by none
            await asyncio.sleep(BEAT_S)

    def beat(self) -> None:
        pause_s = self._liveness.beat(now=self._clock.monotonic())
        if pause_s:
            log.warning("the service was paused for %.1f s", pause_s)
