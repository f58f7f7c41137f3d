"""Silence that is over, and is to be over for a while: the seconds go on over a restart."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.alerts.absence.test_silence import beat, told, use
from tests.server.alerts.bench import RUN, Bench, StartService, healthy

from runwatch.alerts import AlertState
from runwatch.vocabulary import RunId
from runwatch_server.alerts.absence.alerts import AbsenceAlerts
from runwatch_server.db import Database, Work
from runwatch_server.errors import OverloadedError

T = TypeVar("T")

KEPT: dict[str, object] = {
    "alert": "Kept",
    "absence": {"timeout_s": 30},
    "keep_firing_for": {"seconds": 60},
}


async def tick(bench: Bench, *, after_s: float) -> list[tuple[str, AlertState]]:
    bench.clock.advance(after_s)
    await bench.alerting.ticker.tick()
    return await told(bench)


async def fall_silent(bench: Bench) -> None:
    await bench.open()
    await use(bench, KEPT)
    await bench.send(healthy(10), first_step=0)
    for silent_s in (50, 100):
        bench.clock.advance(50)
        await beat(bench, step_age_s=silent_s)
        await bench.alerting.ticker.tick()
    assert await told(bench) == [("Kept", AlertState.FIRING)]


async def step(bench: Bench, number: int) -> None:
    await bench.send([2.0 - 0.1 * number], first_step=9 + number, seq=1 + number)
    await bench.settle()


def test_the_seconds_count_from_the_step_that_ended_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await fall_silent(bench)
            await step(bench, 1)
            assert await tick(bench, after_s=1) == [("Kept", AlertState.RECOVERING)]
            await step(bench, 2)
            assert await tick(bench, after_s=20) == [("Kept", AlertState.RECOVERING)]
        async with start_service() as bench:
            await step(bench, 3)
            assert await tick(bench, after_s=20) == [("Kept", AlertState.RECOVERING)]
            await step(bench, 4)
            assert await tick(bench, after_s=20) == [("Kept", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_restart_alone_does_not_end_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await fall_silent(bench)
        async with start_service() as bench:
            await beat(bench, step_age_s=101)
            assert await tick(bench, after_s=1) == [("Kept", AlertState.FIRING)]

            await step(bench, 1)
            assert await tick(bench, after_s=1) == [("Kept", AlertState.RECOVERING)]

    asyncio.run(scenario())


class AnswerLost(Database):
    """Commits what is written, and fails as if the answer had not come."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_away = True

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._database.read()

    async def write(self, work: Work[T], *, of: RunId | None = None) -> T:
        written = await self._database.write(work, of=of)
        if self.is_away:
            raise OverloadedError("not_committed", "The database did not commit.")
        return written


def test_an_alert_that_was_stored_without_an_answer_is_not_opened_again(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await use(bench, KEPT)
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(50)
            await beat(bench, step_age_s=50)
            database = AnswerLost(bench.database)
            context = replace(bench.alerting.context, database=database)
            silence = AbsenceAlerts(context, lost_s=60.0)
            with pytest.raises(OverloadedError):
                await silence.judge(RUN)
            assert await told(bench) == [("Kept", AlertState.FIRING)]

            database.is_away = False
            await silence.judge(RUN)
            await silence.judge(RUN)
            assert await told(bench) == [("Kept", AlertState.FIRING)]

            await step(bench, 1)
            await silence.judge(RUN)
            assert await told(bench) == [("Kept", AlertState.RECOVERING)]

    asyncio.run(scenario())
