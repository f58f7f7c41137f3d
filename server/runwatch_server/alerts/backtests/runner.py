"""Backtests of stored runs, in small turns, so that the service's own work goes on.

Any reader may ask for one, and its cost depends on the rules in the request: expensive rules take
minutes of a core. So only a few are under way at a time, of which two are judged, in turns of a
quarter of a second. No database connection is held meanwhile, and between two turns it is checked
that the client still waits and that the service is not about to stop.

What the windows of its rules take is reckoned with the run's own layers before it begins, and all
that are under way share one bound.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from typing import Final

from runwatch.rules import Rule
from runwatch.rules.loading import state_bytes
from runwatch.vocabulary import RunId
from runwatch_server.alerts.backtests.turns import BacktestTurns
from runwatch_server.alerts.evaluation.frame_queries import list_streams
from runwatch_server.alerts.evaluation.stored_frames import iterate_frames
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError, TooManyBacktestsError, UnprocessableError
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader

_AT_A_TIME: Final = 2
"""How many are judged at once. They share one interpreter with the judging of the runs that train
now."""
_OF_KEY: Final = 4
_IN_ALL: Final = 8
_MOST_S: Final = 120.0
"""CPU seconds: twice what the built-in rules may take for 100 000 steps of 300 layers."""
_RETRY_AFTER_S: Final = 10
_MIB: Final = 2**20
_MOST_STATE_BYTES: Final = 512 * _MIB
"""Of the windows of all that are under way. The built-in rules take 383 MiB for 20 000 layers."""

Check = Callable[[], Awaitable[None]]
"""Raises if nobody waits for the backtest any more."""


class Backtests:
    """The backtests that are under way. Kept in memory, so each replica has its own."""

    def __init__(
        self, database: Database, layouts: Layouts, packs: PackReader, *, most_s: float = _MOST_S
    ) -> None:
        """Each backtest may take `most_s` CPU seconds."""
        self._database = database
        self._layouts = layouts
        self._packs = packs
        self._most_s = most_s
        self._judging = asyncio.Semaphore(_AT_A_TIME)
        self._under_way: Counter[str] = Counter()
        self._state_bytes = 0
        """Reckoned for all that are under way."""

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
        """Judge the frames of the run's rank 0 that are stored now, attempt by attempt. Raises
        UnprocessableError before it begins if the run has too many layers for these rules, or
        OverloadedError if others leave too little room; later UnprocessableError if it takes too
        long, what `check` raises, and what `iterate_frames` raises."""
        async with self._database.read() as connection:
            streams = await list_streams(connection, run_id)
        num_layers = await self._layouts.num_layers(run_id)  # after: these frames have no others
        with self._room(turns.test.evaluator.rules, num_layers):
            for key, last_seq in [stream for stream in streams if stream[0].rank == 0]:
                frames_of_stream = iterate_frames(
                    self._database, self._packs, run_id, key, last_seq
                )
                async for frames in frames_of_stream:
                    turns.put(frames)
                    await self._judge_put(turns, check)

    @contextmanager
    def _room(self, rules: Collection[Rule], num_layers: int) -> Generator[None]:
        """Reserve what the windows of these rules take."""
        wanted = state_bytes(rules, num_layers)
        if wanted > _MOST_STATE_BYTES:
            raise _too_many_layers(rules, num_layers)
        if self._state_bytes + wanted > _MOST_STATE_BYTES:
            free = (_MOST_STATE_BYTES - self._state_bytes) // _MIB
            detail = (
                f"The windows of these rules take {wanted // _MIB} MiB for the run's {num_layers} "
                f"layers; the backtests under way leave {free} MiB."
            )
            raise OverloadedError("too_many_backtests", detail, retry_after_s=_RETRY_AFTER_S)
        self._state_bytes += wanted
        try:
            yield
        finally:
            self._state_bytes -= wanted

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


def _too_many_layers(rules: Collection[Rule], num_layers: int) -> UnprocessableError:
    found, of_run = state_bytes(rules, num_layers), state_bytes(rules, 0)
    fitting = (_MOST_STATE_BYTES - of_run) * num_layers // (found - of_run)
    return UnprocessableError(
        "backtest_too_large",
        f"rules: found that their windows take {found // _MIB} MiB for the {num_layers} layers of "
        f"this run, wanted at most {_MOST_STATE_BYTES // _MIB} MiB: {fitting} layers. Ask for "
        "fewer rules, or shorter windows.",
    )
