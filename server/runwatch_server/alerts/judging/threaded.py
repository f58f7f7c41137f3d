"""Judging on a thread of the service's own process."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.stream_judge import StreamJudge, rows_of
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.seams import CommittedFrame

T = TypeVar("T")


class ThreadJudging:
    """One thread for all runs: numpy must not stall the event loop, nor take every core."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluator")

    async def open(
        self,
        run_id: RunId,
        rank: int,
        rule_set: RuleSet,
        *,
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> "ThreadJudge":
        judge = await on(self._thread, lambda: StreamJudge(rank, rule_set, state, known))
        return ThreadJudge(self._thread, judge)

    async def close(self) -> None:
        self._thread.shutdown()


class ThreadJudge:
    """A judge of this process."""

    def __init__(self, thread: Executor, judge: StreamJudge) -> None:
        self._thread = thread
        self._judge = judge

    @property
    def rule_set(self) -> RuleSet:
        return self._judge.rule_set

    async def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        return await on(
            self._thread,
            lambda: [one for rows in rows_of(frames) for one in self._judge.observe(rows)],
        )

    async def known_to_next(self) -> dict[str, float]:
        return await on(self._thread, lambda: self._judge.known_to_next)

    async def state(self) -> bytes:
        return await on(self._thread, self._judge.state)

    async def with_rules(self, rule_set: RuleSet) -> "ThreadJudge":
        judge = await on(self._thread, lambda: self._judge.with_rules(rule_set))
        return ThreadJudge(self._thread, judge)


async def on(thread: Executor, function: Callable[[], T]) -> T:
    """What a function returns that may not run on the event loop."""
    return await asyncio.get_running_loop().run_in_executor(thread, function)
