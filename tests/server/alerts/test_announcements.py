"""The log has one warning for an alert, however often it comes back before it is over."""

import asyncio
import logging

import pytest
from tests.server.alerts.bench import StartService, healthy
from tests.server.alerts.test_incidents import LOSS_UP, use

from runwatch_server.alerts.announcements import Announcer

FLAPPING: dict[str, object] = {**LOSS_UP, "keep_firing_for": {"steps": 50}}


def test_an_alert_that_comes_back_or_becomes_worse_is_one_warning(
    start_service: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runwatch_server.alerts.announcements")

    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, FLAPPING)
            await bench.open()
            heat = [9.0, *healthy(4), 9.0, *healthy(4), 90.0, 900.0]
            await bench.send([*healthy(100), *heat, *healthy(80)], first_step=0)
            await bench.settle()
            told = [
                (one.levelname, one.getMessage().split(" of run")[0])
                for one in caplog.records
                if "LossUp" in one.getMessage()
            ]

            assert told == [
                ("WARNING", "alert LossUp firing at step 100"),
                ("INFO", "alert LossUp firing at step 105"),
                ("INFO", "alert LossUp firing at step 110"),
                ("INFO", "alert LossUp resolved at step 162"),
            ]
            assert bench.alerting.announcer.transitions["LossUp", "firing"] == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("num_turns", range(4))
def test_a_loop_that_is_cancelled_at_the_moment_of_news_ends(num_turns: int) -> None:
    """Otherwise a dispatcher goes on, and a service that is to stop waits for it forever. The
    cancellation comes `num_turns` turns of the event loop after the news."""

    async def scenario() -> None:
        announcer = Announcer()

        async def dispatch() -> None:
            while True:
                await announcer.wait(announcer.waiter(), 60.0)

        dispatching = asyncio.create_task(dispatch())
        await asyncio.sleep(0.01)
        announcer.wake_here()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        dispatching.cancel()
        await asyncio.wait([dispatching], timeout=5.0)
        assert dispatching.cancelled()

    asyncio.run(scenario())
