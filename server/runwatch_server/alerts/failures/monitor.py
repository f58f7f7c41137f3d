"""Looks for runs that have failed or been taken over, and raises and ends the alerts about them.

Nothing is remembered between two looks, so that a restart or another replica goes on where this one
was.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Event
from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.failures.queries import (
    Failure,
    ToldFailure,
    list_outlived,
    list_told,
    list_untold,
)
from runwatch_server.alerts.failures.rule import transition_of
from runwatch_server.alerts.recording.transitions import News, record
from runwatch_server.alerts.records import Resolution
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.rules.own_names import ATTEMPT_REPLACED, RUN_FAILED

_OLDEST_S: Final = 3600.0
"""Seconds. An older failure is past: the service was away meanwhile, or is one that did not know
this rule."""
_KEPT_S: Final = 86400.0
"""Seconds after which the alert about a run that nobody has started again is over."""


class FailureMonitor:
    """Judges RunFailed and AttemptReplaced. Replicas may look at the same run: one writes."""

    def __init__(self, context: AlertingContext, *, patience_s: float) -> None:
        """A run that begins its next attempt within `patience_s` seconds, as under a launcher that
        restarts it, is nobody's concern."""
        self._context = context
        self._patience_s = patience_s
        self._tasks = PerRunTasks("telling of its failure")

    async def look(self) -> None:
        """Raise an alert for each new failure, and end those that are over."""
        now = self._context.clock.wall()
        async with self._context.database.read() as connection:
            untold = await self._untold(connection, now)
            told = await list_told(connection)
        for failure in untold:
            await self._tasks.do(failure.run_id, partial(self._tell, failure))
        for one in told:
            if one.rule == RUN_FAILED and one.current_attempt != one.attempt:
                why = f"attempt {one.current_attempt} began"
                end = partial(self._end, one, Resolution.RECOVERED, why)
                await self._tasks.do(one.run_id, end)
            elif now - one.at > _KEPT_S:
                why = "that was a day ago"
                await self._tasks.do(one.run_id, partial(self._end, one, Resolution.RUN_ENDED, why))

    async def _untold(
        self, connection: AsyncConnection, now: float, run_id: RunId | None = None
    ) -> list[Failure]:
        span = now - _OLDEST_S - self._patience_s, now - self._patience_s
        failed = await list_untold(connection, span, run_id=run_id)
        return failed + await list_outlived(connection, since=now - _OLDEST_S, run_id=run_id)

    async def _tell(self, failure: Failure) -> None:
        source = self._context.source(failure.run_id, failure.project, rule_hashes={})

        async def work(connection: AsyncConnection) -> list[News]:
            now = self._context.clock.wall()
            # Meanwhile it may have begun again, and another replica may have told of it.
            still = await self._untold(connection, now, failure.run_id)
            await self._note_replaced(connection, still)
            told = [transition_of(one, now) for one in still]
            return [one async for one in record(connection, source, told, now=now)]

        self._context.on_news(await self._context.database.write(work, of=failure.run_id))

    async def _note_replaced(
        self, connection: AsyncConnection, failures: Sequence[Failure]
    ) -> None:
        for one in failures:
            if one.rule == ATTEMPT_REPLACED:
                event = Event(one.last_step, "attempt_replaced", one.at, {"reason": one.reason})
                await self._context.events.record(
                    connection, one.run_id, (event,), attempt=one.attempt, rank=0, segment=0
                )

    async def _end(self, told: ToldFailure, resolution: Resolution, why: str) -> None:
        async def work(connection: AsyncConnection) -> list[News]:
            left = [
                alert
                for alert in await queries.list_open(connection, told.run_id)
                if alert.rule == told.rule and alert.attempt == told.attempt
            ]
            return await self._context.end_alerts(connection, left, resolution, why)

        self._context.on_news(await self._context.database.write(work, of=told.run_id))
