"""Notices that the service itself was paused: stopped, migrated to another machine, or starved.

No run counts as silent in that time, and every deadline is moved by it. This loop does nothing
else: one that also works would be late because of its work, say after waiting half a minute for the
database, while the service was listening all the time.
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
            self.beat()  # first, or a pause during the first sleep would go unnoticed
            await asyncio.sleep(BEAT_S)

    def beat(self) -> None:
        pause_s = self._liveness.beat(now=self._clock.monotonic())
        if pause_s:
            log.warning("the service was paused for %.1f s", pause_s)
