"""Backtests of stored runs, each a little at a time, so that the service's own work goes on.

Whoever may read may ask for one, and what it costs is up to the rules that are sent along: minutes
of a core, where they are dear. So a few are under way at a time, of which two are judged, in turns
of a quarter of a second; no connection to the database is held meanwhile; and between two turns it
is seen whether there still is an asker, and a service.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.alerts.backtest_turns import BacktestTurns
from runwatch_server.alerts.frame_queries import list_streams
from runwatch_server.alerts.stored_frames import iterate_frames
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError, TooManyBacktestsError, UnprocessableError
from runwatch_server.telemetry.packs.reading import PackReader

_AT_A_TIME: Final = 2
"""Are judged; the interpreter is one, and the runs that are trained now have to be judged too."""
_OF_KEY: Final = 4
_IN_ALL: Final = 8
_MOST_S: Final = 120.0
"""Of a processor: twice what the built-in rules may take for 100 000 steps of 300 layers."""
_RETRY_AFTER_S: Final = 10

Check = Callable[[], Awaitable[None]]
"""Raises where the backtest is for nobody any more."""


class Backtests:
    """Those that are under way; in memory, and so of each replica by itself."""

    def __init__(self, database: Database, packs: PackReader, *, most_s: float = _MOST_S) -> None:
        """Each may take `most_s` seconds of a processor."""
        self._database = database
        self._packs = packs
        self._most_s = most_s
        self._judging = asyncio.Semaphore(_AT_A_TIME)
        self._under_way: Counter[str] = Counter()

    @property
    def num_under_way(self) -> int:
        """Judged now, or waiting for their next turn."""
        return self._under_way.total()

    @contextmanager
    def place(self, key_id: str) -> Generator[None]:
        """For one backtest that is asked for with this key. Raises TooManyBacktestsError for the
        key's sake, OverloadedError for the service's."""
        if self._under_way[key_id] >= _OF_KEY:
            raise TooManyBacktestsError(_OF_KEY, _RETRY_AFTER_S)
        if self._under_way.total() >= _IN_ALL:
            detail = f"{_IN_ALL} backtests are under way, and no more can be."
            raise OverloadedError("too_many_backtests", detail, retry_after_s=_RETRY_AFTER_S)
        self._under_way[key_id] += 1
        try:
            yield
        finally:
            self._under_way[key_id] -= 1
            if not self._under_way[key_id]:
                del self._under_way[key_id]

    async def judge(self, run_id: RunId, turns: BacktestTurns, check: Check) -> None:
        """All that is stored of the run's rank 0, attempt by attempt. Raises what `check` raises,
        UnprocessableError where it takes too long, and as `iterate_frames`."""
        async with self._database.read() as connection:
            streams = await list_streams(connection, run_id)
        for key in [key for key, _ in streams if key.rank == 0]:
            async for frames in iterate_frames(self._database, self._packs, run_id, key):
                turns.put(frames)
                await self._judge_put(turns, check)

    async def _judge_put(self, turns: BacktestTurns, check: Check) -> None:
        while turns.has_more:
            async with self._judging:
                await check()  # here, because the turn may have been waited for
                self._check_used(turns)
                await asyncio.to_thread(turns.take)

    def _check_used(self, turns: BacktestTurns) -> None:
        if turns.used_s >= self._most_s:
            raise UnprocessableError(
                "backtest_too_long",
                f"The backtest was given up at step {turns.step}: it may take "
                f"{self._most_s:g} s of a processor. Ask for fewer steps (first_step, "
                "last_step), fewer rules, or shorter windows.",
            )
