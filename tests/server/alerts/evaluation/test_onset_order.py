"""Ranks are judged in the order in which they broke, in whatever order their rows arrive."""

import asyncio
import math
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tests.server.alerts.bench import Bench, HandClock, StartService, healthy, start
from tests.server.harness import Storage

from runwatch.commands import Rollback
from runwatch_server.clock import Clock


@dataclass
class CountingClock(HandClock):
    """Counts how often somebody looks how much time has passed."""

    num_looks: int = 0

    def as_clock(self) -> Clock:
        def monotonic() -> float:
            self.num_looks += 1
            return self.monotonic_s

        return Clock(wall=lambda: self.wall_s, monotonic=monotonic)


async def start_ranks(bench: Bench) -> None:
    await bench.open(num_ranks=2)
    for rank in (0, 1):
        await bench.send(healthy(10), first_step=0, rank=rank)
    await bench.settle()


async def break_rank_1(bench: Bench) -> None:
    """Its loss breaks at step 12, before anything of rank 0's steps from 10 on has come."""
    await start_ranks(bench)
    await bench.send([1.0, 1.0, math.nan], first_step=10, rank=1)
    await bench.pause_of_evaluators()


async def told_of(bench: Bench) -> list[tuple[int, int]]:
    """The rank and the onset of each alert that people are notified of."""
    found = await bench.alerts()
    return [(alert.rank, alert.onset_step) for alert in found if alert.is_notifiable]


async def rollbacks(bench: Bench) -> list[int | None]:
    """Before which step each rollback that was ordered goes back."""
    actions = [command.action for command in await bench.commands()]
    return [action.before_step for action in actions if isinstance(action, Rollback)]


def test_a_loss_that_broke_by_earlier_gradients_waits_for_rank_0_to_say_so(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await break_rank_1(bench)
            await bench.send([1.0], first_step=10, totals=[0])
            await bench.send([1.0], first_step=11, totals=[1], nonfinite=(1, 0))
            await bench.settle()
            assert await told_of(bench) == [(0, 11)]
            assert await rollbacks(bench) == [11]

    asyncio.run(scenario())


def test_the_rank_whose_loss_broke_is_named_though_it_waited_for_rank_0(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await break_rank_1(bench)
            await bench.send([1.0, 1.0, 1.0], first_step=10, totals=[0, 0, 1])
            await bench.settle()
            assert await told_of(bench) == [(1, 12)]
            assert await rollbacks(bench) == [12]

    asyncio.run(scenario())


def test_a_rank_that_broke_does_not_wait_for_a_silent_rank_0_for_long(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await break_rank_1(bench)
            assert await told_of(bench) == []

            bench.clock.advance(2.1)
            await bench.send([math.nan], first_step=13, rank=1)
            await bench.settle()
            assert await told_of(bench) == [(1, 12)]

            await bench.send([math.nan], first_step=14, rank=1)
            await bench.settle()  # judged at once: rank 0 has not moved since

    asyncio.run(scenario())


def test_steps_before_the_one_that_broke_are_judged_at_once(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await start_ranks(bench)
            await bench.send([math.nan], first_step=10, rank=1)
            await bench.settle()
            assert await told_of(bench) == [(1, 10)]

    asyncio.run(scenario())


def test_no_turn_looks_at_each_rank_that_waits(storage: Storage) -> None:
    num_ranks, clock = 40, CountingClock()

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock)
            await bench.open(num_ranks=num_ranks)
            for rank in range(1, num_ranks):
                await bench.send([math.nan], first_step=11, rank=rank)
            await bench.pause_of_evaluators()
            clock.num_looks = 0
            await bench.send(healthy(12), first_step=0)
            await bench.settle()

    asyncio.run(scenario())
    assert clock.num_looks < 10 * num_ranks
