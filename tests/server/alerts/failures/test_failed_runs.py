"""Runs that fail and say so: who is told, once, and until when."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from tests.server.alerts.bench import RUN, Bench, StartService, healthy
from tests.server.harness import both_engines

from runwatch.alerts import AlertState
from runwatch.messages import AttemptClose, AttemptOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import Severity
from runwatch_server.alerts.failures.monitor import FailureMonitor
from runwatch_server.alerts.records import OPEN_STATES, AlertRecord, Resolution

pytestmark = pytest.mark.anyio

LOST_S = 60.0
HOUR_S = 3600.0
ERROR = "OutOfMemoryError: CUDA out of memory.\nTried to allocate 20.00 GiB."


@pytest.fixture
async def bench(start_service: StartService) -> AsyncIterator[Bench]:
    async with start_service() as bench:
        yield bench


@pytest.fixture
async def trained(bench: Bench) -> Bench:
    """With a run that has made 100 steps."""
    await train(bench)
    return bench


async def train(bench: Bench) -> None:
    await bench.open()
    await bench.send(healthy(100), first_step=0)
    await bench.settle()


async def end(
    bench: Bench,
    status: Literal["finished", "failed", "stopped"] = "failed",
    *,
    attempt: int = 1,
    reason: str = ERROR,
) -> None:
    await bench.runs.close_attempt(RUN, attempt, AttemptClose(status, 99, reason), by="a test")


async def failures_after(bench: Bench, seconds: float) -> list[AlertRecord]:
    """The alerts about failures after a look, when so much time has gone by."""
    bench.clock.advance(seconds)
    await bench.alerting.ticker.tick_slowly()
    return [one for one in await bench.alerts() if one.rule == "RunFailed"]


async def open_rules(bench: Bench) -> list[str]:
    return [one.rule for one in await bench.alerts(*OPEN_STATES)]


async def fall_silent(bench: Bench) -> None:
    """Second by second, since a jump of the clock is a pause of the service."""
    for _ in range(int(LOST_S) + 2):
        bench.clock.advance(1)
        bench.liveness.beat(now=bench.clock.monotonic_s)
    await bench.alerting.ticker.tick()


@both_engines
async def test_a_failure_is_told_once_and_stays_over_a_restart_until_the_next_attempt(
    start_service: StartService,
) -> None:
    async with start_service() as bench:
        await train(bench)
        await end(bench)
        assert await failures_after(bench, LOST_S - 1) == []
        (told,) = await failures_after(bench, 1)
        assert told.facts.summary == (
            "the run failed after step 99: OutOfMemoryError: CUDA out of memory."
        )
        assert (told.severity, told.state) == (Severity.CRITICAL, AlertState.FIRING)
        assert (told.attempt, told.onset_step, told.facts.value) == (1, 99, LOST_S)
    async with start_service() as bench:
        (again,) = await failures_after(bench, HOUR_S)
        assert (again.id, again.state) == (told.id, AlertState.FIRING)

        await bench.open()
        (over,) = await failures_after(bench, 1)
        assert (over.state, over.resolution) == (AlertState.RESOLVED, Resolution.RECOVERED)


async def test_a_run_that_a_launcher_starts_again_wakes_nobody(trained: Bench) -> None:
    await end(trained)
    assert await failures_after(trained, LOST_S / 2) == []
    await trained.open()

    assert await failures_after(trained, LOST_S) == []


@pytest.mark.parametrize("status", ["finished", "stopped"])
async def test_a_run_that_did_not_fail_wakes_nobody(
    trained: Bench, status: Literal["finished", "stopped"]
) -> None:
    await end(trained, status)

    assert await failures_after(trained, LOST_S) == []


async def test_a_run_that_never_made_a_step_wakes_nobody(bench: Bench) -> None:
    """Somebody sits in front of it: it has just been started."""
    await bench.open()
    await end(bench)

    assert await failures_after(bench, LOST_S) == []


async def test_a_failure_that_is_sent_afterwards_wakes_nobody(trained: Bench) -> None:
    await end(trained, "finished")
    brought_in = AttemptOpen(ulid(77, bytes(10)), 0.0, live=False)
    attempt = (await trained.runs.open_attempt(RUN, brought_in, by="a test")).attempt
    await trained.send(healthy(100), first_step=0, attempt=attempt, late=True)
    await trained.settle()
    await end(trained, attempt=attempt)

    assert await failures_after(trained, LOST_S) == []


async def test_a_failure_of_long_ago_wakes_nobody(trained: Bench) -> None:
    """As after an upgrade from a service that did not know the rule."""
    await end(trained)

    assert await failures_after(trained, LOST_S + HOUR_S + 1) == []


async def test_a_run_that_was_told_to_be_lost_is_not_told_again_when_its_end_is_brought_in(
    trained: Bench,
) -> None:
    await fall_silent(trained)
    assert await open_rules(trained) == ["RunLost"]
    await end(trained)

    assert await failures_after(trained, LOST_S) == []
    assert await open_rules(trained) == []


async def test_a_run_that_was_lost_and_came_back_is_told_when_it_fails(trained: Bench) -> None:
    await fall_silent(trained)
    await trained.send(healthy(100), first_step=100)
    await trained.settle()
    await trained.alerting.ticker.tick()
    assert await open_rules(trained) == []
    await end(trained)

    assert len(await failures_after(trained, LOST_S)) == 1


async def test_what_else_was_wrong_ends_with_the_run_and_the_failure_a_day_later(
    trained: Bench,
) -> None:
    await trained.send([math.nan] * 5, first_step=100)
    await trained.settle()
    await end(trained)
    await failures_after(trained, LOST_S)
    assert await open_rules(trained) == ["RunFailed"]
    resolved = await trained.alerts(AlertState.RESOLVED)
    assert {one.resolution for one in resolved} == {Resolution.RUN_ENDED}

    await failures_after(trained, 25 * HOUR_S)
    assert await open_rules(trained) == []


@both_engines
async def test_replicas_that_look_at_the_same_time_tell_it_once(trained: Bench) -> None:
    await end(trained)
    trained.clock.advance(LOST_S)
    context = trained.alerting.context
    monitors = [FailureMonitor(context, patience_s=LOST_S) for _ in range(3)]
    await asyncio.gather(*(monitor.look() for monitor in monitors))

    assert await open_rules(trained) == ["RunFailed"]


@pytest.mark.parametrize(
    ("reason", "summary"),
    [
        ("", "the run failed after step 99"),
        ("\n \n", "the run failed after step 99"),
        ("{step} {x.y}", "the run failed after step 99: {step} {x.y}"),
        ("x" * 500, f"the run failed after step 99: {'x' * 199}…"),
    ],
)
async def test_any_reason_can_be_told(trained: Bench, reason: str, summary: str) -> None:
    await end(trained, reason=reason)

    (told,) = await failures_after(trained, LOST_S)
    assert told.facts.summary == summary
