"""What is told of a run that is about to be removed: that its alerts are over. Once it is gone
nothing of it could be told any more, and its incidents would stay open at who heard of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.alerts import queries
from runwatch_server.alerts.board import NewsBoard
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.records import Resolution
from runwatch_server.commands.queries import find_addressee

log = logging.getLogger(__name__)

_TELL_S: Final = 10.0
"""A receiver that does not take it in this time is not waited for: the run is to go."""
_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Farewell:
    """`is_told` says whether all who are to hear of a run's alerts have heard of their end."""

    context: AlertingContext
    board: NewsBoard
    is_told: Callable[[RunId], Awaitable[bool]]

    async def say(self, run_id: RunId) -> None:
        """Ends a run's alerts and waits, 10 s at most, until that is told. Of a run that goes on,
        which cannot be removed, nothing is."""
        work = partial(self._end_alerts, run_id=run_id)
        if not await self.context.database.write(work, of=run_id):
            return
        self.board.wake()
        try:
            async with asyncio.timeout(_TELL_S):
                while not await self.is_told(run_id):
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            log.warning(
                "run %s is removed, and not all receivers have heard that its alerts are over",
                run_id,
            )

    async def _end_alerts(self, connection: AsyncConnection, run_id: RunId) -> bool:
        """Whether the run may go."""
        addressee = await find_addressee(connection, run_id)
        if addressee is None or not _may_go(addressee.state):
            return False
        await self.context.end_alerts(
            connection,
            await queries.list_open(connection, run_id),
            Resolution.RUN_ENDED,
            "the run was removed",
            last_step=addressee.last_step,
        )
        return True


def _may_go(state: RunState) -> bool:
    return state.is_ended or state is RunState.LOST
