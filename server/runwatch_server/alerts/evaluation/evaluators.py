"""Judges every run: at most one task per run at a time, and one thread for all of them."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation.consequences import RunRemovedError, StreamMovedError
from runwatch_server.alerts.evaluation.frame_queries import (
    StreamBehind,
    list_behind,
    list_behind_of_going_on,
)
from runwatch_server.alerts.evaluation.run_evaluation import RunEvaluation
from runwatch_server.alerts.evaluation.state_budget import Needs, StateBudget
from runwatch_server.alerts.judging import JudgeLostError
from runwatch_server.cancellation import end_tasks
from runwatch_server.errors import OverloadedError
from runwatch_server.replicas.ownership import NotOwnerError
from runwatch_server.telemetry.committed_frames import CommittedFrame

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
_STOP_S: Final = 10.0
"""Seconds. Docker, Kubernetes and systemd, as documented, kill a service 30 s after asking it to
stop, and requests in progress may take ten of them."""
_IDLE_S: Final = 900.0
"""Seconds of silence after which a run is dropped from memory; its state is stored."""
_OVER_S: Final = 10.0
"""The same for a run from which nothing is expected: it has ended, or was sent afterwards."""
_MOST_RUNS: Final = 1024
"""Most runs held in memory, however little they take; beyond it, one that was silent long is
dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorHealth:
    """Whether incoming frames are judged."""

    num_runs: int
    """Number of runs held in memory."""
    state_bytes: int
    """Memory that their evaluators take."""
    num_behind: int
    num_waiting: int
    """Number of frames that are stored and not yet judged."""
    num_busy: int
    failing_runs: tuple[RunId, ...]
    """Runs whose last batch could not be judged; it is tried again and again."""
    num_failures: int
    """Number of failed batches since the start."""
    num_frames: int
    """Number of frames handed over since the start."""
    num_missing: int
    """Number of frames that did not come and were skipped, since the start."""
    busy_s: float
    """For how many seconds the longest judgement under way has been running. A process that does
    not move on is replaced after a minute, or after longer if that has happened before."""
    is_running: bool

    @property
    def is_well(self) -> bool:
        return self.is_running and not self.failing_runs


class Evaluators:
    """Judges the frames of all runs, in the order of each stream."""

    def __init__(self, context: AlertingContext, *, most_bytes: int) -> None:
        """`most_bytes` is the memory for what all evaluators remember."""
        self._context = context
        self._states = StateBudget(most_bytes)
        self._crowded: dict[RunId, str] = {}
        """Runs for which there is no room now, and their projects; the first has waited longest."""
        self._runs: dict[RunId, RunEvaluation] = {}
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._dirty: set[RunId] = set()
        self._failing: dict[RunId, asyncio.TimerHandle] = {}
        self._waits: dict[RunId, asyncio.TimerHandle] = {}
        self._last_used: dict[RunId, float] = {}
        """Of each run held, the one that was silent longest first."""
        self._num_failures = 0
        self._num_frames = 0
        self._num_missing = 0
        self._is_running = False

    def committed(self, frame: CommittedFrame) -> None:
        """A frame has been stored: judge it in its turn, or notify the replica that owns its
        run."""
        if not self._context.ownership.owns(frame.run_id):
            self._context.ownership.want(frame.run_id)
            return
        self._run(frame.run_id).put(frame)
        self._num_frames += 1
        self._wake(frame.run_id)

    async def start(self) -> None:
        """Resume with the frames that were stored but not judged when the service stopped."""
        self._is_running = True
        await self.catch_up()

    async def catch_up(self, run_ids: Collection[RunId] | None = None) -> None:
        """Look for stored frames that nobody has judged, of some runs or of all."""
        async with self._context.database.read() as connection:
            self._wake_behind(await list_behind(connection, run_ids))

    async def catch_up_with_going_on(self) -> None:
        """The same for all runs that have not ended. Others are behind only if an owner was lost
        while it judged their last frames."""
        async with self._context.database.read() as connection:
            self._wake_behind(await list_behind_of_going_on(connection))

    def _wake_behind(self, behind: Iterable[StreamBehind]) -> None:
        for one in behind:
            if self._context.ownership.owns(one.run_id):
                self._run(one.run_id).note(one.key, one.newest_seq, one.passed_over)
                self._wake(one.run_id)

    async def stop(self) -> None:
        """Finish the batches under way and save the evaluators' state, as far as that is possible
        in time. What is not written is judged again after the next start."""
        self._is_running = False
        for timer in (*self._failing.values(), *self._waits.values()):
            timer.cancel()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._finish()
        except TimeoutError:
            log.warning("stopped, although frames were still being judged after %g s", _STOP_S)

    async def _finish(self) -> None:
        tasks = tuple(self._tasks.values())
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # cancelled if it takes too long, and the tasks with it
            await end_tasks(tasks)
        for run_id in tuple(self._runs):
            await self.forget(run_id)

    async def drop_idle(self) -> None:
        """Drop runs from memory that have been silent for long, those that are over at once."""
        now = self._context.clock.monotonic()
        expected = set(self._context.liveness.run_ids())
        for run_id, used in tuple(self._last_used.items()):
            is_over = run_id not in expected and self.is_drained(run_id)
            if now - used > (_OVER_S if is_over else _IDLE_S):
                await self.forget(run_id)

    async def _has_room(self, run: RunEvaluation) -> bool:
        """Whether there is room for a run, which counts from now on. Others are dropped for it if
        they have nothing left to judge."""
        needs = None if self._states.holds(run.run_id) else await run.needs()
        with suppress(OverloadedError):  # others try again
            while len(self._runs) > _MOST_RUNS or not self._fits(needs):
                silent = self._longest_silent()
                if silent is None:
                    break
                await self.forget(silent)
        if needs is None:
            return True
        if not self._fits(needs):
            self._crowded[run.run_id] = needs.project
            return False
        self._states.hold(run.run_id, needs)
        self._let_in()
        return True

    def _fits(self, needs: Needs | None) -> bool:
        return needs is None or self._states.fits(needs)

    def _longest_silent(self) -> RunId | None:
        """The run to drop first, if any can be: one of the project that takes most memory, so that
        one with many runs does not drop the runs of the others."""
        largest = self._states.largest
        of_largest = (one for one in self._last_used if self._states.project_of(one) == largest)
        candidates = filter(self.is_drained, chain(of_largest, self._last_used))
        return next(candidates, None)

    def _let_in(self) -> None:
        """There may be room: wake the run of each project that has waited longest for it."""
        first = {project: run_id for run_id, project in reversed(self._crowded.items())}
        for run_id in first.values():
            self._wake(run_id)

    async def forget(self, run_id: RunId) -> None:
        """Drop a run from memory; its next frame rebuilds its evaluators from the database. Its
        state is saved first, and a run that sends meanwhile is judged after that and kept: a state
        that holds more rows than are counted as judged would count them twice after a restart."""
        run = self._runs.get(run_id)
        if run is None or run_id in self._tasks:
            return
        self._tasks[run_id] = asyncio.create_task(self._save(run), name=f"saving of run {run_id}")
        await self._tasks[run_id]
        if run_id not in self._tasks:
            self._forget_evaluation(run)

    async def _save(self, run: RunEvaluation) -> None:
        try:
            await run.save()
        except (StreamMovedError, NotOwnerError, JudgeLostError) as error:
            log.info("%s: there is nothing to save", error)
        finally:
            del self._tasks[run.run_id]
            if run.run_id in self._dirty:
                self._wake(run.run_id)

    def owns(self, run_id: RunId) -> bool:
        """Whether this replica judges the run."""
        return self._context.ownership.owns(run_id)

    def drop(self, run_id: RunId) -> None:
        """Another replica judges the run now, so discard what is remembered of it here. A batch
        under way fails when it is written."""
        self._forget(run_id)

    def begin_again(self, run_id: RunId) -> None:
        """The run was removed: frames that arrive under its id are judged from the first on."""
        failing = self._failing.pop(run_id, None)
        if failing is not None:
            failing.cancel()
        self._forget(run_id)

    def is_drained(self, run_id: RunId) -> bool:
        """Whether all frames of a run have been judged, as far as is known in memory."""
        run = self._runs.get(run_id)
        return run_id not in self._tasks and (run is None or not run.is_behind)

    @property
    def health(self) -> EvaluatorHealth:
        return EvaluatorHealth(
            num_runs=len(self._runs),
            state_bytes=self._states.used_bytes,
            num_behind=sum(run.is_behind for run in self._runs.values()),
            num_waiting=sum(run.num_waiting for run in self._runs.values()),
            num_busy=len(self._tasks),
            failing_runs=tuple(self._failing),
            num_failures=self._num_failures,
            num_frames=self._num_frames,
            num_missing=self._num_missing,
            busy_s=self._context.judging.busy_s,
            is_running=self._is_running,
        )

    def _run(self, run_id: RunId) -> RunEvaluation:
        self._last_used.pop(run_id, None)  # moved to the end
        self._last_used[run_id] = self._context.clock.monotonic()
        if run_id not in self._runs:
            self._runs[run_id] = RunEvaluation(run_id, self._context, self._count_missing)
        return self._runs[run_id]

    def _count_missing(self, num_frames: int) -> None:
        self._num_missing += num_frames

    def _wake(self, run_id: RunId) -> None:
        self._dirty.add(run_id)
        if self._is_running and run_id not in self._tasks and run_id not in self._failing:
            task = asyncio.create_task(self._judge(run_id), name=f"evaluator of run {run_id}")
            self._tasks[run_id] = task

    async def _judge(self, run_id: RunId) -> None:
        run = self._runs.get(run_id)
        if run is None:  # dropped before its turn came
            self._tasks.pop(run_id, None)
            return
        self._crowded.pop(run_id, None)
        try:
            await self._judge_waiting(run)
        except RunRemovedError as error:
            log.info("%s while its frames were judged", error)
            self._forget_evaluation(run)
        except (StreamMovedError, NotOwnerError) as error:
            log.warning("%s: its evaluators are built again from disk", error)
            self._forget_evaluation(run)
        except (OverloadedError, JudgeLostError) as error:  # the database or the judge is gone
            log.warning("run %s: its frames could not be judged (%s); tried again", run_id, error)
            self._try_later(run_id)
        except Exception:  # one run's failure must not stop the others
            log.exception("run %s: its frames could not be judged; tried again", run_id)
            self._try_later(run_id)
        finally:
            self._tasks.pop(run_id, None)
            if run_id in self._dirty and self._runs.get(run_id) is not run:
                self._wake(run_id)  # dropped and begun again meanwhile
            if run_id not in self._crowded:
                self._let_in()

    async def _judge_waiting(self, run: RunEvaluation) -> None:
        if not await self._has_room(run):
            return
        while run.run_id in self._dirty and self._judges(run):
            self._dirty.discard(run.run_id)
            while self._judges(run) and await run.step():
                self._weigh(run)
        self._weigh(run)
        self._come_back(run.run_id, run)

    def _weigh(self, run: RunEvaluation) -> None:
        project = self._states.project_of(run.run_id)
        if project is not None and self._runs.get(run.run_id) is run:
            self._states.hold(run.run_id, Needs(project, run.num_bytes))

    def _judges(self, run: RunEvaluation) -> bool:
        """Whether this evaluation is still the one that judges the run."""
        return self._is_running and self._runs.get(run.run_id) is run

    def _come_back(self, run_id: RunId, run: RunEvaluation) -> None:
        """Judge the run again once it need not wait any longer for frames that have not come."""
        left_s = run.wait_left_s
        if left_s is not None:
            if run_id in self._waits:  # for something that takes longer, it may be
                self._waits[run_id].cancel()
            loop = asyncio.get_running_loop()
            self._waits[run_id] = loop.call_later(max(left_s, 0.01), self._end_wait, run_id)

    def _end_wait(self, run_id: RunId) -> None:
        self._waits.pop(run_id, None)
        if run_id in self._runs:
            self._wake(run_id)

    def _try_later(self, run_id: RunId) -> None:
        self._num_failures += 1
        loop = asyncio.get_running_loop()
        self._failing[run_id] = loop.call_later(_RETRY_S, self._retry, run_id)

    def _retry(self, run_id: RunId) -> None:
        self._failing.pop(run_id, None)
        if run_id in self._runs:
            self._wake(run_id)

    def _forget_evaluation(self, run: RunEvaluation) -> None:
        """Unless another one has taken its place meanwhile."""
        if self._runs.get(run.run_id) is run:
            self._forget(run.run_id)

    def _forget(self, run_id: RunId) -> None:
        self._runs.pop(run_id, None)
        self._last_used.pop(run_id, None)
        self._dirty.discard(run_id)
        self._states.drop(run_id)
        self._crowded.pop(run_id, None)
        self._let_in()
