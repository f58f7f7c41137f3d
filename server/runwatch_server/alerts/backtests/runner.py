"""Backtests of stored runs, in small turns, so that the service's own work goes on.

Any reader may ask for one, and its cost depends on the rules in the request: expensive rules take
minutes of a core. So only a few are under way at a time, of which two are judged, in turns of a
quarter of a second. No database connection is held meanwhile, and between two turns it is checked
that the client still waits and that the service is not about to stop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.alerts.backtests.turns import BacktestTurns
from runwatch_server.alerts.evaluation.frame_queries import list_streams
from runwatch_server.alerts.evaluation.stored_frames import iterate_frames
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError, TooManyBacktestsError, UnprocessableError
from runwatch_server.telemetry.packs.reading import PackReader

_AT_A_TIME: Final = 2
"""How many are judged at once. They share one interpreter with the judging of the runs that train
now."""
_OF_KEY: Final = 4
_IN_ALL: Final = 8
_MOST_S: Final = 120.0
"""CPU seconds: twice what the built-in rules may take for 100 000 steps of 300 layers."""
_RETRY_AFTER_S: Final = 10

Check = Callable[[], Awaitable[None]]
"""Raises if nobody waits for the backtest any more."""


class Backtests:
    """The backtests that are under way. Kept in memory, so each replica has its own."""

    def __init__(self, database: Database, packs: PackReader, *, most_s: float = _MOST_S) -> None:
        """Each backtest may take `most_s` CPU seconds."""
        self._database = database
        self._packs = packs
        self._most_s = most_s
        self._judging = asyncio.Semaphore(_AT_A_TIME)
        self._under_way: Counter[str] = Counter()

    @property
    def num_under_way(self) -> int:
        """Number of backtests that are being judged or wait for their next turn."""
        return self._under_way.total()

    @contextmanager
    def place(self, key_id: str) -> Generator[None]:
        """Reserve a place for one backtest requested with this key. Raises TooManyBacktestsError if
        the key has too many, OverloadedError if the service has."""
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
        """Judge all stored frames of the run's rank 0, attempt by attempt. Raises what `check`
        raises, UnprocessableError if it takes too long, and what `iterate_frames` raises."""
        async with self._database.read() as connection:
            streams = await list_streams(connection, run_id)
        for key in [key for key, _ in streams if key.rank == 0]:
            async for frames in iterate_frames(self._database, self._packs, run_id, key):
                turns.put(frames)
                await self._judge_put(turns, check)

    async def _judge_put(self, turns: BacktestTurns, check: Check) -> None:
        while turns.has_more:
            async with self._judging:
                await check()  # here, since waiting for the turn may have taken long
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
