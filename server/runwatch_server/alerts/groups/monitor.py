"""Compares the runs of groups at intervals and raises alerts for those that are far worse.

Nothing is remembered between two looks: the open alert is the stored one, so that a restart or
another replica goes on with it.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import Moment
from runwatch.aliases import resolve
from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.groups.outlier import (
    FEWEST_OTHERS,
    WINDOW_STEPS,
    compare,
    judge,
    transition_of,
)
from runwatch_server.alerts.recording.transitions import News, record
from runwatch_server.errors import NotFoundError
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.replicas.ownership import NotOwnerError
from runwatch_server.rules.own_names import GROUP_OUTLIER
from runwatch_server.runs.queries import Run, find_run, list_group_peers, list_open_grouped
from runwatch_server.telemetry.queries import list_metrics
from runwatch_server.telemetry.reading import Reader, Window

_MOST_OTHERS = 16
"""If there are more, the newest ones are compared."""


class GroupMonitor:
    """Judges GroupOutlier for the runs that this replica judges."""

    def __init__(self, context: AlertingContext, reader: Reader) -> None:
        self._context = context
        self._reader = reader
        self._tasks = PerRunTasks("the comparison with its group")

    async def compare_all(self) -> None:
        """Compare each live run of a group with the others that have reached the same steps."""
        async with self._context.database.read() as connection:
            run_ids = await list_open_grouped(connection)
        for run_id in run_ids:
            if self._context.ownership.owns(run_id):
                await self._tasks.do(run_id, partial(self._compare, run_id))

    async def _compare(self, run_id: RunId) -> None:
        async with self._context.database.read() as connection:
            run = await find_run(connection, run_id)
        if run is None or run.last_step is None or run.last_step < WINDOW_STEPS:
            return
        async with self._context.database.read() as connection:
            others = await list_group_peers(connection, run, limit=_MOST_OTHERS)
            open_alerts = await queries.list_open(connection, run.id)
        if len(others) < FEWEST_OTHERS:
            return
        own_N = await self._losses(run.id, run.last_step)
        comparison = compare(own_N, [await self._losses(one, run.last_step) for one in others])
        if comparison is None:
            return
        known = next((one for one in open_alerts if one.rule == GROUP_OUTLIER), None)
        now = Moment(run.last_step, self._context.clock.wall())
        change = judge(comparison, known, now)
        if change.is_news:
            told = transition_of(change, comparison, known, now, run.current_attempt)
            await self._record(run, told)

    async def _losses(self, run_id: RunId, last_step: int) -> NDArray[np.float64]:
        """(N,) losses of the window that ends at this step, in the run's effective history."""
        window = Window(
            first_step=last_step - WINDOW_STEPS + 1, last_step=last_step, points=WINDOW_STEPS
        )
        async with self._context.database.read() as connection:
            names = resolve(await list_metrics(connection, run_id))
        if "loss" not in names:
            return np.empty(0)
        try:
            series = await self._reader.metric_series(run_id, names["loss"], window)
        except NotFoundError:
            return np.empty(0)
        return np.empty(0) if series.values is None else series.values[:, 0]

    async def _record(self, run: Run, told: Transition) -> None:
        source = self._context.source(run.id, run.project, rule_hashes={})

        async def work(connection: AsyncConnection) -> list[News]:
            await self._context.ownership.check(connection, run.id)
            at = self._context.clock.wall()
            return [one async for one in record(connection, source, [told], now=at)]

        try:
            self._context.on_news(await self._context.database.write(work, of=run.id))
        except NotOwnerError:
            return  # its new owner looks after it
