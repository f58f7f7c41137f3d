"""Loops beside the requests: one that fails is begun again, and said so."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from prometheus_client import generate_latest
from tests.waiting import until_so

from runwatch_server.background import Loop, keep_running
from runwatch_server.monitoring.service_metrics import ServiceMetrics

pytestmark = pytest.mark.anyio


def num_failures(health: ServiceMetrics, name: str) -> str:
    (line,) = (
        line
        for line in generate_latest(health.registry).decode().splitlines()
        if line.startswith(f'runwatch_background_failures_total{{loop="{name}"}}')
    )
    return line.split()[-1]


async def test_a_loop_that_fails_is_begun_again_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health = ServiceMetrics()
    num_begun = 0
    has_ended = asyncio.Event()

    async def fail_twice() -> None:
        nonlocal num_begun
        num_begun += 1
        if num_begun <= 2:
            raise ZeroDivisionError("a loop's own fault")
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    async with AsyncExitStack() as stack:
        keep_running(stack, Loop("leases", fail_twice), health, again_s=0.0)
        assert num_failures(health, "leases") == "0.0"
        await until_so(lambda: num_begun == 3)
        assert num_failures(health, "leases") == "2.0"
        assert not has_ended.is_set()
    assert has_ended.is_set()
    told = [record for record in caplog.records if record.getMessage().startswith("leases failed")]
    assert len(told) == 2
    assert all(record.exc_info for record in told)


async def test_closing_does_not_wait_for_the_next_try() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    health = ServiceMetrics()
    async with asyncio.timeout(60.0), AsyncExitStack() as stack:
        keep_running(stack, Loop("ticker", fail), health, again_s=3600.0)
        await until_so(lambda: num_failures(health, "ticker") == "1.0")
