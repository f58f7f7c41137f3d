"""The log has one warning for an alert, however often it comes back before it is over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from tests.server.alerts.bench import Bench, StartService, healthy
from tests.server.alerts.test_incidents import LOSS_UP, rule_file, use

from runwatch_server.alerts.announcements import Announcer
from runwatch_server.rules.pack import split_file

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


async def end_the_run(bench: Bench) -> None:
    await bench.close()
    await bench.alerting.ticker.tick_slowly()


async def begin_again(bench: Bench) -> None:
    second = await bench.open()
    await bench.send(healthy(8), first_step=0, attempt=second)
    await bench.settle()


async def change_the_rule(bench: Bench) -> None:
    rules = bench.alerting.rules
    (rule,) = await rules.list_all("")
    await rules.replace(
        rule.id,
        split_file(rule_file({**FLAPPING, "when": "loss > 7"})),
        version=rule.version,
        enabled=True,
        actor="tests",
    )
    await bench.send(healthy(8), first_step=101)
    await bench.settle()


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (end_the_run, "run_ended"),
        (begin_again, "attempt_ended"),
        (change_the_rule, "rule_changed"),
    ],
)
def test_an_alert_that_ends_with_what_it_watched_is_counted_and_logged(
    start_service: StartService,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[Bench], Awaitable[None]],
    why: str,
) -> None:
    caplog.set_level(logging.INFO, "runwatch_server.alerts.announcements")

    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, FLAPPING)
            await bench.open()
            await bench.send([*healthy(100), 9.0], first_step=0)
            await bench.settle()
            await end(bench)
            assert bench.alerting.announcer.transitions["LossUp", "resolved"] == 1
            told = [one.getMessage() for one in caplog.records if "LossUp" in one.getMessage()]
            assert told[-1].startswith(f"alert LossUp resolved ({why}) at step 100 of run ")

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
