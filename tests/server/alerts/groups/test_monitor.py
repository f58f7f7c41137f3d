"""Runs of a group, stored for real, and what is told of the one that falls behind."""

import asyncio

import numpy as np
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.alerts.bench import ADMIN, Bench, StartService

from runwatch.alerts import AlertState
from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_server.alerts.records import AlertFilter
from runwatch_server.runs.queries import update_run

LAGGARD = 0


def run_of(number: int) -> RunId:
    return RunId(ulid(1000 + number, bytes(10)))


async def open_group(bench: Bench, *, num_runs: int = 5, group: str = "seeds") -> None:
    for number in range(num_runs):
        run_id = run_of(number)
        await bench.runs.open(RunOpen(run_id, f"seed {number}", group=group), ADMIN)
        await bench.runs.open_attempt(
            run_id, AttemptOpen(ulid(2000 + number, bytes(10)), 0.0), by="a test"
        )


async def train(bench: Bench, number: int, *, loss: float, seq: int, num_steps: int = 256) -> None:
    """The run's next steps, around a loss."""
    first_step = (seq - 1) * num_steps
    noise = np.random.default_rng(100 * number + seq).normal(0.0, 0.01, num_steps)
    frame = Frame(
        attempt=1,
        rank=0,
        seq=seq,
        segment=0,
        first_step=first_step,
        times=np.arange(first_step, first_step + num_steps, dtype=np.float64),
        metric_names=("loss",),
        metrics=(loss + noise).reshape(num_steps, 1),
    )
    await bench.ingest.put_frame(run_of(number), encode_frame(frame), proven=1, late=False)


async def train_all(bench: Bench, *, laggard: float, seq: int, num_runs: int = 5) -> None:
    for number in range(num_runs):
        await train(bench, number, loss=laggard if number == LAGGARD else 1.0, seq=seq)
    await bench.alerting.ticker.compare_groups()


async def told(bench: Bench) -> list[tuple[RunId, AlertState]]:
    found = await bench.alerting.alerts.list(AlertFilter(), limit=500)
    return [(one.run_id, one.state) for one in found if one.rule == "GroupOutlier"]


@pytest.mark.slow
def test_the_run_that_falls_behind_is_told_over_a_restart_until_it_is_back(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await open_group(bench)
            await train_all(bench, laggard=1.0, seq=1)
            assert await told(bench) == []
            await train_all(bench, laggard=2.0, seq=2)
            assert await told(bench) == [(run_of(LAGGARD), AlertState.PENDING)]
        async with start_service() as bench:
            await train_all(bench, laggard=2.0, seq=3)
            assert await told(bench) == [(run_of(LAGGARD), AlertState.FIRING)]
            await bench.alerting.ticker.tick()
            await train_all(bench, laggard=1.0, seq=4)
            await train_all(bench, laggard=1.0, seq=5)
            assert await told(bench) == [(run_of(LAGGARD), AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_run_that_cannot_be_read_keeps_no_other_from_being_compared(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            bad = run_of(-1)
            await bench.runs.open(RunOpen(bad, "bad", group="seeds"), ADMIN)

            async def damage(connection: AsyncConnection) -> None:
                await update_run(connection, bad, config="{")

            await bench.database.write(damage)
            await open_group(bench)
            await train_all(bench, laggard=2.0, seq=1)
            assert await told(bench) == [(run_of(LAGGARD), AlertState.PENDING)]

    asyncio.run(scenario())


def test_runs_of_no_group_and_groups_of_few_are_left_alone(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await open_group(bench, num_runs=4)
            for seq in (1, 2, 3):
                await train_all(bench, laggard=3.0, seq=seq, num_runs=4)
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_run_keeps_its_group_and_is_found_by_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await open_group(bench, num_runs=2, group="sweep-3")
            await bench.runs.open(RunOpen(run_of(7), "alone"), ADMIN)
            found = await bench.runs.list_runs(
                ADMIN, project=None, state=None, before=None, limit=10, group="sweep-3"
            )
            assert [run.id for run in found] == [run_of(1), run_of(0)]
            assert (await bench.runs.find(run_of(7), ADMIN)).group is None

    asyncio.run(scenario())
