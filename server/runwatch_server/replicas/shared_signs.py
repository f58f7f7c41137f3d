"""Shares signs of life: a trainer talks to whichever replica its connection leads to, and the owner
of its run must not take it for dead."""

import asyncio
import logging
from functools import partial
from typing import Final

from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ServiceError
from runwatch_server.replicas import queries
from runwatch_server.runs.liveness import Liveness

log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_OVERLAP_S: Final = 10.0
"""Seconds. Signs that were committed late carry an earlier time, so this much is read again;
hearing a sign twice does no harm."""


class SharedSigns:
    """A background task: `run` until cancelled."""

    def __init__(self, database: Database, clock: Clock, liveness: Liveness, replica: str) -> None:
        self._database = database
        self._clock = clock
        self._liveness = liveness
        self._replica = replica
        self._read_to = 0.0

    async def run(self) -> None:
        while True:
            try:
                await self.exchange()
            except ServiceError as error:  # the database is unavailable; tried again next round
                log.warning("signs of life were not shared: %s", error)
            await asyncio.sleep(_EVERY_S)

    async def exchange(self) -> None:
        """Store the signs received here, and read those that others stored."""
        heard = self._liveness.take_signs(now=self._clock.monotonic())
        if heard:
            work = partial(queries.note_signs, heard=heard, by=self._replica)
            try:
                await self._database.write(work)
            except ServiceError:
                self._liveness.keep_signs(heard)
                raise
        async with self._database.read() as connection:
            signs, newest = await queries.read_signs(
                connection, since=self._read_to - _OVERLAP_S, but_by=self._replica
            )
        self._read_to = newest
        now = self._clock.monotonic()
        for sign in signs:
            self._liveness.note_sign(sign, now=now)
