"""Frames that are lost, or come after they were passed over: what is judged stays the same."""

import asyncio
import math

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.alerts.bench import RUN, Bench, StartService, healthy
from tests.server.alerts.evaluation.test_attempts import WORSE
from tests.server.alerts.test_incidents import use
from tests.server.harness import both_engines

from runwatch.alerts import AlertState
from runwatch_server.alerts.records import Resolution
from runwatch_server.alerts.tables import evaluations
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import frames


async def pass_over(bench: Bench) -> None:
    """Until what is missing was waited for, and is missed no longer."""
    await bench.pause_of_evaluators()
    bench.clock.advance(31)
    await bench.alerting.evaluators.catch_up()
    await bench.settle()


async def steps_of_nan(bench: Bench) -> list[int]:
    return [one.onset_step for one in await bench.alerts() if one.rule == "NonFinite"]


def test_a_frame_that_comes_after_it_was_passed_over_is_judged(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send(healthy(10), first_step=20, seq=3)
            await pass_over(bench)
            assert await steps_of_nan(bench) == []

            await bench.send([math.nan] * 10, first_step=10, seq=2)
            await bench.settle()
            assert await steps_of_nan(bench) == [10]

    asyncio.run(scenario())


@both_engines
def test_a_frame_that_was_passed_over_is_judged_once_though_the_service_ends(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send(healthy(10), first_step=20, seq=3)
            await pass_over(bench)
            await bench.alerting.evaluators.stop()
            await bench.send([math.nan] * 10, first_step=10, seq=2)
        async with start_service() as bench:
            await bench.settle()
            assert await steps_of_nan(bench) == [10]
            await bench.send(healthy(60), first_step=30, seq=4)
            await bench.settle()
            bench.alerting.evaluators.drop(RUN)  # a kill saves nothing
        async with start_service() as bench:
            await bench.send(healthy(60), first_step=90, seq=5)
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            assert (alert.onset_step, alert.state) == (10, AlertState.RESOLVED)

    asyncio.run(scenario())


def test_frames_before_one_far_ahead_are_judged_as_they_come(start_service: StartService) -> None:
    """Somebody else with a key of the project sends a number that is ahead of the trainer's."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send([2.0], first_step=10, seq=1001)
            await pass_over(bench)
            for seq in range(2, 6):
                await bench.send(healthy(10), first_step=10 * seq, seq=seq)
            await bench.send([math.nan], first_step=60, seq=6)
            await bench.settle()

            assert await steps_of_nan(bench) == [60]
            (command, *_) = await bench.commands()
            assert command.attempt == 1

    asyncio.run(scenario())


def test_a_frame_that_comes_while_it_is_passed_over_is_judged(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send(healthy(10), first_step=20, seq=3)
            await bench.pause_of_evaluators()
            bench.clock.advance(31)
            await asyncio.gather(
                bench.alerting.evaluators.catch_up(),
                bench.send([math.nan] * 10, first_step=10, seq=2),
            )
            await bench.settle()

            assert await steps_of_nan(bench) == [10]

    asyncio.run(scenario())


def test_nobody_waits_for_frames_that_are_said_to_be_lost(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send([math.nan], first_step=90_000, seq=90_000, lost=89_998)
            await bench.settle()

            assert await steps_of_nan(bench) == [90_000]
            assert bench.alerting.evaluators.health.num_missing == 89_998

    asyncio.run(scenario())


def test_a_run_whose_unjudged_frames_were_removed_counts_as_judged(
    start_service: StartService,
) -> None:
    async def remove(connection: AsyncConnection) -> None:
        await connection.execute(frames.delete().where(frames.c.seq > 1))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send(healthy(10), first_step=20, seq=3)  # waits for the one before
            await bench.database.write(remove)
            await pass_over(bench)
            assert await bench.alerting.alerts.unjudged_since(RUN) is None

            await bench.send([math.nan], first_step=30, seq=4)
            await bench.settle()
            assert [alert.onset_step for alert in await bench.alerts()] == [30]

    asyncio.run(scenario())


def test_what_is_missing_after_removed_frames_is_waited_for_anew(
    start_service: StartService,
) -> None:
    async def remove(connection: AsyncConnection) -> None:
        await connection.execute(frames.delete().where(frames.c.seq > 1))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send(healthy(10), first_step=20, seq=3)  # waits for the one before
            await bench.pause_of_evaluators()
            await bench.database.write(remove)
            await pass_over(bench)

            await bench.send(healthy(10), first_step=40, seq=5)  # waits for the one before
            await bench.pause_of_evaluators()
            await bench.send([math.nan], first_step=30, seq=4)
            await bench.settle()
            assert [alert.onset_step for alert in await bench.alerts()] == [30]

    asyncio.run(scenario())


def test_nothing_is_stored_of_a_run_that_was_removed_with_its_unjudged_frames(
    start_service: StartService,
) -> None:
    async def remove_run(connection: AsyncConnection) -> None:
        await connection.execute(runs.delete())
        await connection.execute(frames.delete())

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=10, seq=2)  # waits for the one before
            await bench.pause_of_evaluators()
            await bench.database.write(remove_run)
            await pass_over(bench)
            async with bench.database.read() as connection:
                assert (await connection.execute(evaluations.select())).all() == []

    asyncio.run(scenario())


def test_a_run_that_was_removed_while_it_was_judged_is_not_said_to_be_judged_by_others(
    start_service: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    async def remove_run(connection: AsyncConnection) -> None:
        await connection.execute(runs.delete())
        await connection.execute(evaluations.delete())

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.settle()
            await bench.send(healthy(10), first_step=20, seq=3)  # waits for the one before
            await bench.pause_of_evaluators()
            await bench.database.write(remove_run)
            with caplog.at_level("INFO"):
                await pass_over(bench)

    asyncio.run(scenario())
    told = [one.getMessage() for one in caplog.records if "judged" in one.getMessage()]
    assert told[:1] == [f"run {RUN} was removed while its frames were judged"]


def test_an_unjudged_frame_in_a_pack_is_unjudged_since_it_was_packed_at_the_latest(
    start_service: StartService,
) -> None:
    async def pack(connection: AsyncConnection) -> None:
        row = {"run_id": RUN, "attempt": 1, "rank": 0, "first_seq": 2, "last_seq": 2, "segment": 0}
        row |= {"first_step": 10, "last_step": 19, "object": "", "num_bytes": 0, "digest": ""}
        await connection.execute(packs.insert().values(**row, packed_at=1234.0, contents=b""))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.settle()
            await bench.send(healthy(10), first_step=20, seq=3)
            await bench.pause_of_evaluators()
            await bench.database.write(pack)

            assert await bench.alerting.alerts.unjudged_since(RUN) == 1234.0

    asyncio.run(scenario())


def test_an_attempt_whose_first_frame_is_lost_ends_the_alerts_of_the_one_before(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send([math.nan], first_step=0)
            await bench.settle()
            attempt = await bench.open()
            await bench.send(healthy(2), first_step=2, attempt=attempt, seq=2)
            await pass_over(bench)

            (alert,) = await bench.alerts()
            assert alert.resolution is Resolution.ATTEMPT_ENDED

    asyncio.run(scenario())


def test_an_attempt_whose_first_frame_comes_after_the_fact_ends_them_with_its_next(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send([math.nan], first_step=0)
            await bench.settle()
            attempt = await bench.open()
            await bench.send(healthy(2), first_step=0, attempt=attempt, late=True)
            await bench.settle()
            await bench.send(healthy(2), first_step=2, attempt=attempt)
            await bench.settle()

            (alert,) = await bench.alerts()
            assert alert.resolution is Resolution.ATTEMPT_ENDED

    asyncio.run(scenario())


def test_an_attempt_knows_how_the_last_one_ended_that_sent_anything(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, WORSE)
            await bench.open()
            await bench.send(healthy(20), first_step=0)
            await bench.settle()
            await bench.open()  # and dies before its first frame
            attempt = await bench.open()
            await bench.send([3.5], first_step=20, attempt=attempt)
            await bench.settle()

            assert [one.rule for one in await bench.alerts()] == ["Worse"]

    asyncio.run(scenario())


def test_attempts_that_were_stored_and_not_judged_are_judged_one_after_the_other(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, WORSE)
            await bench.open()
            await bench.alerting.evaluators.stop()
            await bench.send(healthy(20), first_step=0)
            attempt = await bench.open()
            await bench.send([3.5], first_step=20, attempt=attempt)
        async with start_service() as bench:
            await bench.settle()

            assert [one.rule for one in await bench.alerts()] == ["Worse"]

    asyncio.run(scenario())
