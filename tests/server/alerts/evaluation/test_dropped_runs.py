"""Runs that have been silent for long, or have ended, are dropped from memory once their state is
saved."""

import asyncio
import math

import pytest
from tests.server.alerts.bench import RUN, StartService, healthy

from runwatch_server.alerts.assembly import EvaluationOwner
from runwatch_server.alerts.evaluation.run_evaluation import RunEvaluation


def test_a_run_that_sends_while_its_state_is_saved_is_judged_after_that_and_kept(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of a thousand ranks has a thousand states to save."""
    save, is_saving, may_go_on = RunEvaluation.save, asyncio.Event(), asyncio.Event()

    async def save_slowly(run: RunEvaluation) -> None:
        is_saving.set()
        await may_go_on.wait()
        await save(run)

    async def scenario() -> None:
        async with start_service() as bench:
            evaluators = bench.alerting.evaluators
            owner = EvaluationOwner(evaluators, bench.alerting.ticker)
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
            with monkeypatch.context() as patched:
                patched.setattr(RunEvaluation, "save", save_slowly)
                releasing = asyncio.create_task(owner.can_release(RUN))
                await is_saving.wait()
                await bench.send([math.nan], first_step=10)
                assert evaluators.health.num_waiting == 1
                assert await bench.alerts() == []

                may_go_on.set()
                assert not await releasing
            await bench.settle()
            assert [alert.onset_step for alert in await bench.alerts()] == [10]
            assert evaluators.health.num_runs == 1

    asyncio.run(scenario())
