"""What happens by the clock and not by a frame: silence is judged, commands expire, ends are
recorded.

A plain loop on the monotonic clock: a round, then a second's sleep. How long a round takes, and
whether the service was paused during it, does not change what counts as silence
(`runs/pause_watch.py`).
"""

import asyncio
import logging
from collections.abc import Iterator, Set
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.absence.alerts import AbsenceAlerts
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation.evaluators import Evaluators
from runwatch_server.alerts.failures.monitor import FailureMonitor
from runwatch_server.alerts.groups.monitor import GroupMonitor
from runwatch_server.alerts.recording.transitions import News
from runwatch_server.alerts.records import Resolution
from runwatch_server.commands.queries import find_addressee
from runwatch_server.commands.records import Addressee
from runwatch_server.errors import OverloadedError
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.replicas.ownership import NotOwnerError
from runwatch_server.rules.own_names import OUTLAST_RUNS
from runwatch_server.telemetry.reading import Reader

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
_SLOW_TICKS: Final = 5
"""Expiry and ends are checked in every fifth tick."""
_RUNS_AT_ONCE: Final = 50
"""Number of runs judged before other tasks get a turn; most are judged without waiting for
anything."""
_ROUNDS_AT_ONCE: Final = 32
"""Number of rounds that work at once. The first handles all runs without news. If there is news, as
when ten thousand runs fall silent at once, that of this many runs is written in one transaction."""
_CATCH_UP_TICKS: Final = 60
"""Runs that have ended are looked through for frames left unjudged in every sixtieth tick, because
it reads the streams of all runs that there ever were."""
_GROUP_TICKS: Final = 60
"""Runs of groups are compared in every sixtieth tick, because it reads the losses of all of
them."""


class Ticker:
    """A background task: `run` until cancelled."""

    def __init__(
        self, context: AlertingContext, evaluators: Evaluators, reader: Reader, *, lost_s: float
    ) -> None:
        self._context = context
        self._evaluators = evaluators
        self._absence_alerts = AbsenceAlerts(context, lost_s=lost_s)
        self._groups = GroupMonitor(context, reader)
        self._failures = FailureMonitor(context, patience_s=lost_s)
        self._silences = PerRunTasks("the judgement of its silence")
        self._ends = PerRunTasks("ending its alerts")
        self._last_progress = context.clock.monotonic()
        self.open_alerts: dict[tuple[str, str], int] = {}
        """Number of open alerts for each state and severity, as of the last slow tick."""

    @property
    def failing_runs(self) -> Set[RunId]:
        """The runs whose silence could not be judged."""
        return self._silences.failing

    @property
    def age_s(self) -> float:
        """Seconds since it last finished a part of its work: some runs, or a whole round. A round
        over ten thousand runs that fall silent at once takes a minute."""
        return self._context.clock.monotonic() - self._last_progress

    async def run(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(TICK_S)
            count += 1
            try:
                await self.tick()
                if count % _SLOW_TICKS == 0:
                    await self.tick_slowly()
                if count % _CATCH_UP_TICKS == 0:
                    await self._evaluators.catch_up()
                if count % _GROUP_TICKS == 0:
                    await self.compare_groups()
            except OverloadedError as error:  # the database is unavailable
                log.warning("a tick of the absence rules failed (%s); the next tries again", error)
            except Exception:  # a failed tick must not end the loop
                log.exception("a tick of the absence rules failed; the next one tries again")
            else:
                self._note_progress()

    async def tick(self) -> None:
        """Judge the silence of every rank that is expected to send."""
        ours = [
            id_ for id_ in self._context.liveness.run_ids() if self._context.ownership.owns(id_)
        ]
        for run_id in (self._absence_alerts.runs | self._silences.failing) - set(ours):
            self.drop(run_id)
        left = enumerate(ours, start=1)
        rounds = (self._judge_silences(left) for _ in range(_ROUNDS_AT_ONCE))
        for failure in await asyncio.gather(*rounds, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _judge_silences(self, left: Iterator[tuple[int, RunId]]) -> None:
        """Judge the runs that are left; other rounds take from the same iterator."""
        for number, run_id in left:
            await self._silences.do(run_id, partial(self._judge_silence, run_id))
            if number % _RUNS_AT_ONCE == 0:
                self._note_progress()
                await asyncio.sleep(0)

    def _note_progress(self) -> None:
        self._last_progress = self._context.clock.monotonic()

    async def _judge_silence(self, run_id: RunId) -> None:
        try:
            await self._absence_alerts.judge(run_id)
        except NotOwnerError as error:
            log.info("%s", error)
            self.drop(run_id)

    async def compare_groups(self) -> None:
        """Compare the runs of each group with one another."""
        await self._groups.compare_all()

    def drop(self, run_id: RunId) -> None:
        """Forget what is known of a run's silence, because another replica may judge it
        meanwhile."""
        self._absence_alerts.drop(run_id)
        self._silences.forget(run_id)

    async def tick_slowly(self) -> None:
        """Expire commands, tell of runs that failed, resolve what a run's end leaves open, and
        look for frames left unjudged."""
        await self._context.commands.expire_due()
        await self._failures.look()
        async with self._context.database.read() as connection:
            run_ids = await queries.list_runs_to_end(connection)
            addressees = [await find_addressee(connection, run_id) for run_id in run_ids]
            self.open_alerts = await queries.count_by_state(connection)
        for addressee in addressees:
            if addressee is not None and self._is_ours_to_end(addressee):
                await self._ends.do(addressee.run_id, partial(self._end_run, addressee))
        await self._evaluators.catch_up_with_going_on()
        await self._evaluators.drop_idle()

    def _is_ours_to_end(self, addressee: Addressee) -> bool:
        return (
            addressee.state.is_ended
            and self._context.ownership.owns(addressee.run_id)
            and self._evaluators.is_drained(addressee.run_id)
        )

    async def _end_run(self, addressee: Addressee) -> None:
        async def work(connection: AsyncConnection) -> list[News]:
            left = [
                alert
                for alert in await queries.list_open(connection, addressee.run_id)
                if alert.rule not in OUTLAST_RUNS
            ]
            return await self._context.end_alerts(
                connection,
                left,
                Resolution.RUN_ENDED,
                f"the run is {addressee.state}",
                last_step=addressee.last_step,
            )

        self._context.on_news(await self._context.database.write(work, of=addressee.run_id))
