"""A new attempt is judged knowing how the one before it ended."""

import asyncio
import math

from tests.server.alerts.bench import StartService, healthy
from tests.server.alerts.test_incidents import use

from runwatch.alerts import AlertState

WORSE: dict[str, object] = {"alert": "Worse", "when": "loss > 1.5 * loss_before"}


def test_what_a_restart_threw_back_is_seen_in_the_next_attempt_and_after_a_restart_of_ours(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, WORSE)
            await bench.open()
            await bench.send(healthy(20), first_step=0)
            await bench.settle()
            await bench.open()
            await bench.send([2.5], first_step=20, attempt=2)
            await bench.settle()
        async with start_service() as bench:
            bench.seqs[2, 0] = 1
            await bench.send([3.5], first_step=21, attempt=2)
            await bench.settle()

            told = [(one.rule, one.onset_step, one.attempt) for one in await bench.alerts()]
            assert told == [("Worse", 21, 2)]

    asyncio.run(scenario())


def test_a_service_that_begins_with_the_second_attempt_finds_the_first_on_disk(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, WORSE)
            await bench.open()
            await bench.send(healthy(20), first_step=0)
            await bench.settle()
        async with start_service() as bench:
            await bench.open()
            await bench.send([3.5], first_step=20, attempt=2)
            await bench.settle()

            assert [one.rule for one in await bench.alerts()] == ["Worse"]

    asyncio.run(scenario())


def test_a_restart_on_fewer_ranks_ends_the_alerts_of_those_that_are_gone(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=3)
            for rank in range(3):
                await bench.send([math.nan], first_step=0, rank=rank)
            await bench.settle()
            await bench.open(num_ranks=2)
            await bench.send(healthy(1), first_step=1, attempt=2)
            await bench.settle()

            found = await bench.alerts(AlertState.FIRING)
            assert [alert.rank for alert in found] == [1]  # rank 1 has yet to speak

    asyncio.run(scenario())
