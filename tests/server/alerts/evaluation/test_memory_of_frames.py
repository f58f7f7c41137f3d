"""Frames that wait are kept in memory only while there is room for them; they are judged all the
same, from the database."""

import asyncio
import math
from contextlib import AsyncExitStack

import numpy as np
from tests.server.alerts.bench import RUN, Bench, HandClock, healthy, start
from tests.server.harness import Storage, both_engines

from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch_server.alerts.evaluation.stored_frames import Batch, next_batch, read_batch
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.packs.reading import PackReader

ROOM = 200_000


async def send_backlog(bench: Bench) -> None:
    """Ten frames of some 50 kB, of which the last has a NaN, to a service that judges nothing."""
    await bench.open()
    await bench.alerting.evaluators.stop()
    for index in range(9):
        await bench.send(healthy(1000), first_step=1000 * index)
    await bench.send([math.nan], first_step=9000)


async def steps_of_nan(bench: Bench) -> list[int]:
    return [one.onset_step for one in await bench.alerts() if one.rule == "NonFinite"]


def test_a_backlog_is_not_kept_beyond_the_budget_and_is_judged(
    storage: Storage, clock: HandClock
) -> None:
    async def scenario() -> None:
        budget = FrameBudget(2 * ROOM)
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock, frame_budget=budget)
            await send_backlog(bench)
            assert 0 < budget.used_bytes <= ROOM
            assert bench.alerting.evaluators.health.num_waiting == 10

            await bench.alerting.evaluators.start()
            await bench.settle()
            assert await steps_of_nan(bench) == [9000]

    asyncio.run(scenario())


@both_engines
def test_a_restart_judges_its_backlog_within_the_same_budget(
    storage: Storage, clock: HandClock
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await send_backlog(await start(stack, storage, clock))
        budget = FrameBudget(2 * ROOM)
        async with AsyncExitStack() as stack, budget.room("another", ROOM):
            bench = await start(stack, storage, clock, frame_budget=budget)
            await asyncio.sleep(0.1)
            assert bench.alerting.evaluators.health.num_waiting == 10  # there is no room to read
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock, frame_budget=budget)
            await bench.settle()
            assert await steps_of_nan(bench) == [9000]
            assert budget.used_bytes == 0

    asyncio.run(scenario())


async def send_wide(bench: Bench, num_frames: int, *, num_steps: int) -> None:
    """Frames of 16 kB a step, unpacked."""
    names = tuple(f"metric {index}" for index in range(512))
    for index in range(num_frames):
        frame = Frame(
            attempt=1,
            rank=0,
            seq=index + 1,
            segment=0,
            first_step=num_steps * index,
            times=np.zeros(num_steps),
            metric_names=names,
            metrics=np.zeros((num_steps, 512)),
        )
        await bench.ingest.put_frame(RUN, encode_frame(frame), proven=1, late=False)


async def next_of(bench: Bench, first_seq: int) -> Batch | None:
    async with bench.database.read() as connection:
        return await next_batch(connection, RUN, StreamKey(1, 0), first_seq=first_seq, limit=64)


def test_frames_are_read_by_what_they_take_unpacked(storage: Storage, clock: HandClock) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock)
            await bench.open()
            await bench.alerting.evaluators.stop()
            await send_wide(bench, 5, num_steps=900)
            batch = await next_of(bench, 2)
            assert batch is not None
            assert (batch.first_seq, batch.last_seq) == (2, 3)

            found = await read_batch(
                bench.database, PackReader(None, clock.as_clock().monotonic), batch
            )
            assert [one.seq for one in found] == [2, 3]
            assert sum(one.frame.num_bytes for one in found) < batch.num_bytes

    asyncio.run(scenario())


def test_a_frame_that_takes_more_than_is_meant_for_a_batch_is_read_alone(
    storage: Storage, clock: HandClock
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock)
            await bench.open()
            await bench.alerting.evaluators.stop()
            await send_wide(bench, 2, num_steps=4000)
            batch = await next_of(bench, 1)
            assert batch is not None
            assert (batch.first_seq, batch.last_seq) == (1, 1)
            assert batch.num_bytes > 16 * 2**20
            assert await next_of(bench, 3) is None

    asyncio.run(scenario())
