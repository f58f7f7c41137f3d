"""Judging on a thread of the service's own process, in turns: a run with much to judge lets others
go in between, and a stop need not wait for its end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from runwatch.rules import Rows, Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.fair_queue import Payer
from runwatch_server.alerts.judging.judging_thread import JudgingThread
from runwatch_server.alerts.judging.stream_judge import StreamJudge, are_late, rows_of
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.committed_frames import CommittedFrame

T = TypeVar("T")

ROWS_A_TURN: Final = 64
"""Rows per turn at first. A row takes a tenth of a millisecond with the built-in rules, and tens of
milliseconds with the most expensive rules that a project may have. The fixed cost of a turn makes
small turns three times as much work, so cheap rows get larger ones."""
_FEWEST_ROWS: Final = 16
_MOST_ROWS: Final = 1024
_LONG_S: Final = 0.1
"""Seconds. A turn that took longer is followed by one of half as many rows, and a turn that took
less than a quarter of this by one of twice as many."""


class ThreadJudging:
    """One thread for all runs: numpy must neither block the event loop nor use every core."""

    def __init__(self) -> None:
        self._thread = JudgingThread("evaluator")

    @property
    def busy_s(self) -> float:
        return self._thread.busy_s

    async def open(
        self,
        run_id: RunId,
        rank: int,
        rule_set: RuleSet,
        *,
        project: str = "",
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> "ThreadJudge":
        payer = Payer(project, run_id)
        judge = await self._thread.do(payer, lambda: StreamJudge(rank, rule_set, state, known))
        return ThreadJudge(self._thread, payer, judge)

    async def close(self) -> None:
        self._thread.shutdown()


class ThreadJudge:
    """A judge in this process."""

    def __init__(self, thread: JudgingThread, payer: Payer, judge: StreamJudge) -> None:
        self._thread = thread
        self._payer = payer
        self._judge = judge
        self._rows_a_turn = ROWS_A_TURN

    @property
    def rule_set(self) -> RuleSet:
        return self._judge.rule_set

    @property
    def num_bytes(self) -> int:
        return self._judge.num_bytes

    async def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        parts, can_wait = self._parts_of(frames), are_late(frames)
        found: list[Transition] = []
        is_done = False
        while not is_done:
            turn = partial(self._take_turn, parts)
            is_done, told = await self._do(turn, can_wait=can_wait)
            found += told
        return found

    def _take_turn(self, parts: Iterator[Rows]) -> tuple[bool, list[Transition]]:
        """Judge for one turn. Returns whether all rows have been judged, and the transitions."""
        began, num_rows = monotonic(), 0
        found: list[Transition] = []
        for rows in parts:
            found += self._judge.observe(rows)
            num_rows += rows.num_rows
            if num_rows >= self._rows_a_turn or monotonic() - began > _LONG_S:
                self._size_next(monotonic() - began)
                return False, found
        return True, found

    def _size_next(self, took_s: float) -> None:
        if took_s > _LONG_S:
            self._rows_a_turn = max(self._rows_a_turn // 2, _FEWEST_ROWS)
        elif took_s < _LONG_S / 4:
            self._rows_a_turn = min(self._rows_a_turn * 2, _MOST_ROWS)

    def _parts_of(self, frames: Sequence[CommittedFrame]) -> Iterator[Rows]:
        """The rows of frames, in parts of at most one turn. Raises FrameError."""
        for rows in rows_of(frames):
            if rows.unplaced:
                yield rows
            start = 0
            while start < rows.num_rows:
                stop = start + self._rows_a_turn
                yield rows.between(start, stop)
                start = stop

    async def known_to_next(self) -> dict[str, float]:
        return await self._do(lambda: self._judge.known_to_next)

    async def state(self) -> bytes:
        return await self._do(self._judge.state)

    async def with_rules(self, rule_set: RuleSet) -> "ThreadJudge":
        judge = await self._do(lambda: self._judge.with_rules(rule_set))
        return ThreadJudge(self._thread, self._payer, judge)

    async def _do(self, function: Callable[[], T], *, can_wait: bool = False) -> T:
        return await self._thread.do(self._payer, function, can_wait=can_wait)
