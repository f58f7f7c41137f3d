"""Notifies that a run's alerts are over before the run is deleted. Afterwards nothing about it
could be sent any more, and its incidents would stay open at the receivers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.alerts import queries
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.recording.transitions import News
from runwatch_server.alerts.records import Resolution
from runwatch_server.commands.queries import find_addressee

log = logging.getLogger(__name__)

_TELL_S: Final = 10.0
"""How long to wait for receivers, in seconds; then the run is deleted anyway."""
_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class RunRemovalNotice:
    """Ends the alerts of runs that are to be deleted. `all_notified` says whether all receivers of
    a run's alerts have been notified of their end."""

    context: AlertingContext
    all_notified: Callable[[RunId], Awaitable[bool]]

    async def notify(self, run_id: RunId) -> None:
        """End a run's alerts and wait, at most 10 s, until that has been sent. A run that is still
        going cannot be deleted, and nothing is sent about it."""
        work = partial(self._end_alerts, run_id=run_id)
        news = await self.context.database.write(work, of=run_id)
        if news is None:
            return
        self.context.on_news(news)
        try:
            async with asyncio.timeout(_TELL_S):
                while not await self.all_notified(run_id):
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            log.warning(
                "run %s is removed, and not all receivers have heard that its alerts are over",
                run_id,
            )

    async def _end_alerts(self, connection: AsyncConnection, run_id: RunId) -> list[News] | None:
        """End the run's alerts if it may be deleted; None if it may not."""
        addressee = await find_addressee(connection, run_id)
        if addressee is None or not _may_go(addressee.state):
            return None
        return await self.context.end_alerts(
            connection,
            await queries.list_open(connection, run_id),
            Resolution.RUN_ENDED,
            "the run was removed",
            last_step=addressee.last_step,
        )


def _may_go(state: RunState) -> bool:
    return state.is_ended or state is RunState.LOST
