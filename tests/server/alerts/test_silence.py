"""Rules about silence, judged by the clock."""

import asyncio

import pytest
from tests.server.alerts.bench import RUN, Bench, StartService, healthy

from runwatch.alerts import AlertState
from runwatch.messages import Heartbeat
from runwatch.vocabulary import Phase


async def beat(bench: Bench, *, step_age_s: float, phase: Phase = Phase.TRAIN) -> None:
    await bench.runs.note_heartbeat(RUN, Heartbeat(1, 0, 9, step_age_s, phase))


async def told(bench: Bench) -> list[tuple[str, AlertState]]:
    return [(alert.rule, alert.state) for alert in await bench.alerts()]


def test_a_run_that_speaks_but_makes_no_step_is_told_of(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301)
            await bench.alerting.ticker.tick()
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.FIRING)]

    asyncio.run(scenario())


def test_a_step_ends_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301)
            await bench.alerting.ticker.tick()
            await bench.send(healthy(1), first_step=10)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_long_checkpoint_is_no_silence(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301, phase=Phase.CHECKPOINT)
            await bench.alerting.ticker.tick()
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_silent_process_is_lost_and_not_also_without_a_step(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(400)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

    asyncio.run(scenario())


def test_a_restart_neither_doubles_nor_forgets_an_alert_about_silence(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
        async with start_service() as bench:
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

            await beat(bench, step_age_s=200)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_the_service_s_own_absence_is_nobody_s_silence(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
        bench.clock.advance(3600)
        async with start_service() as bench:
            await bench.alerting.ticker.tick()
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_run_may_be_lost_twice_after_the_same_step(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            for _ in range(2):
                await bench.send(healthy(1), first_step=0)
                bench.clock.advance(61)
                await bench.alerting.ticker.tick()
                await beat(bench, step_age_s=0)
                await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.RESOLVED)] * 2

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_tick_that_comes_after_a_pause_judges_nothing(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            ticker = bench.alerting.ticker
            running = asyncio.create_task(ticker.run())
            await asyncio.sleep(0)
            bench.clock.advance(61)
            await bench.until(lambda: ticker.age_s == 0)
            assert await told(bench) == []

            async with asyncio.timeout(10):
                while await told(bench) != [("RunLost", AlertState.FIRING)]:
                    await asyncio.sleep(0.02)
            running.cancel()

    asyncio.run(scenario())
