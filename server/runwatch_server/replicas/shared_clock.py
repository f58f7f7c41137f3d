"""The wall clock that replicas share: the database's, told by this machine's.

What one replica writes down to be done at a time, such as a message to be sent, another one reads.
If their machines' clocks are a minute apart, messages come a minute late or are sent by both.
"""

import asyncio
import logging
from typing import Final

from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ServiceError
from runwatch_server.replicas import queries

log = logging.getLogger(__name__)

_EVERY_S: Final = 10.0
_NEAR_S: Final = 0.1
"""Clocks that seem to be apart by less count as equal, so that this one runs evenly although no
measurement is exact."""


class SharedClock:
    """Measures how far this machine's clock is ahead: first `measure`, then `run` until
    cancelled."""

    def __init__(self, database: Database, own: Clock) -> None:
        self._database = database
        self._own = own
        self._ahead_s = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(wall=self._wall, monotonic=self._own.monotonic)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.measure()
            except ServiceError as error:  # the database is unavailable; tried again next time
                log.warning("the database's clock was not read: %s", error)

    async def measure(self) -> None:
        async with self._database.read() as connection:
            before = self._own.wall()
            now = await queries.read_clock(connection)
            took_s = self._own.wall() - before
        ahead_s = before + took_s / 2 - now
        if abs(ahead_s - self._ahead_s) > abs(took_s) / 2 + _NEAR_S:
            log.warning(
                "this machine's clock is %.1f s ahead of the database's, which is used for what "
                "replicas share",
                ahead_s,
            )
            self._ahead_s = ahead_s

    def _wall(self) -> float:
        return self._own.wall() - self._ahead_s
