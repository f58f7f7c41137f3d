"""Runs of several ranks: each speaks for itself, and falls silent by itself."""

import asyncio
import math

import pytest
from tests.server.alerts.bench import RUN, Bench, StartService, healthy

from runwatch.alerts import AlertState
from runwatch.messages import AttemptClose
from runwatch.vocabulary import RunState
from runwatch_server.alerts.event_queries import list_events
from runwatch_server.errors import UnprocessableError

FIRING, RESOLVED = AlertState.FIRING, AlertState.RESOLVED


async def told(bench: Bench) -> list[tuple[str, int, AlertState]]:
    return [(alert.rule, alert.rank, alert.state) for alert in await bench.alerts()]


async def told_of(bench: Bench) -> set[tuple[int, AlertState]]:
    """The rank and state of each alert of which people heard."""
    return {(alert.rank, alert.state) for alert in await bench.alerts() if alert.is_notifiable}


async def start_ranks(bench: Bench, num_ranks: int) -> None:
    await bench.open(num_ranks=num_ranks)
    for rank in range(num_ranks):
        await bench.send(healthy(10), first_step=0, rank=rank)


def test_a_loss_that_breaks_on_one_rank_names_that_rank_and_no_other(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 4)
            await bench.send([math.nan], first_step=10, rank=3)
            await bench.settle()
            [alert] = await bench.alerts()
            assert (alert.rule, alert.rank, alert.labels["rank"]) == ("NonFinite", 3, "3")

    asyncio.run(scenario())


def test_what_breaks_on_one_rank_and_reaches_the_others_is_told_once(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 3)
            for rank in (2, 0, 1):
                await bench.send([math.nan, *healthy(30)], first_step=10, rank=rank)
            await bench.settle()
            found = await bench.alerts()
            assert {alert.rank for alert in found} == {0, 1, 2}
            assert sorted(alert.inhibited_by or "" for alert in found) == [
                "",
                "NonFinite",
                "NonFinite",
            ]
            assert {alert.state for alert in found} == {RESOLVED}

    asyncio.run(scenario())


def test_a_rank_on_which_it_began_earlier_is_told_though_it_is_heard_late(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            await bench.send([1.0, math.nan], first_step=10, rank=0)
            await bench.send([math.nan, math.nan], first_step=10, rank=1)
            await bench.settle()
            onsets = {alert.rank: alert.onset_step for alert in await bench.alerts()}
            assert onsets == {0: 11, 1: 10}
            assert {alert.inhibited_by for alert in await bench.alerts()} == {None}

    asyncio.run(scenario())


def test_what_goes_on_past_the_end_of_what_explained_it_is_told(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            await bench.send([math.nan], first_step=10, rank=1)
            await bench.settle()
            await bench.send([1.0, *[math.nan] * 30], first_step=10, rank=0)
            await bench.settle()
            assert await told_of(bench) == {(1, FIRING)}

            await bench.send(healthy(300), first_step=11, rank=1)
            await bench.settle()
            assert await told_of(bench) == {(1, RESOLVED)}  # rank 0 is not judged so far yet

            await bench.send([math.nan] * 300, first_step=41, rank=0)
            await bench.settle()
            assert await told_of(bench) == {(0, FIRING), (1, RESOLVED)}
            [released] = [alert for alert in await bench.alerts() if alert.rank == 0]
            async with bench.database.read() as connection:
                events = await list_events(connection, RUN, released.id)
            # What it asks for was ordered for rank 1, and no trainer has taken it.
            assert [event.kind for event in events] == ["firing", "released", "suppressed"]

    asyncio.run(scenario())


def test_what_ends_with_what_explained_it_is_told_to_nobody(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            for rank in (1, 0):
                await bench.send([math.nan, *healthy(3)], first_step=10, rank=rank)
                await bench.settle()
            await bench.send(healthy(300), first_step=14, rank=1)
            await bench.settle()
            for step in range(14, 314, 10):
                await bench.send(healthy(10), first_step=step, rank=0)
            await bench.settle()
            assert await told_of(bench) == {(1, RESOLVED)}
            assert {alert.state for alert in await bench.alerts()} == {RESOLVED}

    asyncio.run(scenario())


def test_an_alert_of_steps_that_were_gone_back_over_explains_none(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            for rank in (1, 0):
                await bench.send([*healthy(90), math.nan, *healthy(40)], first_step=10, rank=rank)
                await bench.pause_of_evaluators()
            await bench.settle()
            assert await told_of(bench) == {(1, RESOLVED)}

            await bench.send([*healthy(60), math.nan], first_step=50, segment=1, rank=0)
            await bench.settle()
            assert await told_of(bench) == {(0, FIRING), (1, RESOLVED)}

    asyncio.run(scenario())


def test_a_rank_that_falls_silent_beside_others_is_named(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 3)
            bench.clock.advance(61)
            for rank in (0, 1):
                await bench.send(healthy(1), first_step=10, rank=rank)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RankLost", 2, FIRING)]

            await bench.send(healthy(1), first_step=10, rank=2)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RankLost", 2, RESOLVED)]

    asyncio.run(scenario())


def test_when_all_ranks_fall_silent_the_run_is_lost_and_no_rank(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 3)
            bench.clock.advance(9)  # between two heartbeats: not all spoke last at the same time
            await bench.send(healthy(1), first_step=10, rank=1)
            bench.clock.advance(300)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", 0, FIRING)]

    asyncio.run(scenario())


def test_a_rank_that_leaves_in_order_ends_nothing_and_is_not_missed(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            run = await bench.runs.close_attempt(
                RUN, 1, AttemptClose("finished", 9, rank=1), by="a test"
            )
            assert not run.state.is_ended

            bench.clock.advance(61)
            await bench.send(healthy(1), first_step=10)
            await bench.alerting.ticker.tick()
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_rank_that_fails_ends_the_run_and_is_named(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench, 2)
            closing = AttemptClose("failed", 9, "ValueError: bad batch", rank=1)
            run = await bench.runs.close_attempt(RUN, 1, closing, by="a test")
            [attempt] = await bench.runs.list_attempts(RUN)
            assert run.state is RunState.FAILED
            assert attempt.reason == "rank 1: ValueError: bad batch"

    asyncio.run(scenario())


def test_a_rank_that_the_attempt_does_not_have_is_refused(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=2)
            with pytest.raises(UnprocessableError, match="found 2, wanted 0 to 1"):
                await bench.send(healthy(1), first_step=0, rank=2)

    asyncio.run(scenario())
