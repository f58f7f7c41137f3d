"""Reports steps that could not be read: counts and logs them, and adds one event to the run."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from runwatch.frames import Event
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ServiceError
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.gaps import Gap, GapReason

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1000
_MOST_KNOWN: Final = 10_000


class GapCounter(Protocol):
    def observe_gap(self, reason: GapReason) -> None: ...


@dataclass(frozen=True, slots=True)
class _ReportedGap:
    run_id: RunId
    attempt: int
    rank: int
    gap: Gap


class GapLog:
    """Takes note of gaps; `run`, which runs until cancelled, writes the events."""

    def __init__(
        self, database: Database, clock: Clock, events: EventLog, counter: GapCounter
    ) -> None:
        self._database = database
        self._clock = clock
        self._events = events
        self._counter = counter
        self._known: set[tuple[RunId, str]] = set()
        self._waiting: asyncio.Queue[_ReportedGap] = asyncio.Queue(_MOST_WAITING)

    def observe_gaps(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self._counter.observe_gap(gap.reason)
            # That a store is unavailable now says nothing about the run.
            is_new = gap.reason is not GapReason.LATE and (run_id, gap.where) not in self._known
            if is_new and not self._waiting.full():
                self._remember(run_id, gap)
                self._waiting.put_nowait(_ReportedGap(run_id, attempt, rank, gap))

    def forget(self, run_id: RunId) -> None:
        """The run was removed."""
        self._known = {known for known in self._known if known[0] != run_id}

    async def run(self) -> None:
        while True:
            reported = await self._waiting.get()
            try:
                await self._record(reported)
            except ServiceError as error:
                log.warning("run %s: a gap was not noted: %s", reported.run_id, error)
                self._known.discard((reported.run_id, reported.gap.where))

    def _remember(self, run_id: RunId, gap: Gap) -> None:
        log.error(
            "run %s: steps %d to %d cannot be read: %s is %s",
            run_id,
            gap.first_step,
            gap.last_step,
            gap.where,
            gap.reason,
        )
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add((run_id, gap.where))

    async def _record(self, reported: _ReportedGap) -> None:
        gap = reported.gap
        event = Event(
            step=gap.first_step,
            kind="unreadable",
            at=self._clock.wall(),
            detail={"reason": gap.reason.value, "where": gap.where, "last_step": gap.last_step},
        )
        record = partial(
            self._events.record,
            run_id=reported.run_id,
            recorded=(event,),
            attempt=reported.attempt,
            rank=reported.rank,
            segment=gap.segment,
        )
        await self._database.write(record, of=reported.run_id)
