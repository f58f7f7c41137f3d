"""Runs that have been silent for long, or have ended, are dropped from memory once their state is
saved."""

import asyncio
import math

import numpy as np
import pytest
from tests.server.alerts.bench import RUN, Bench, HandClock, StartService, healthy
from tests.server.alerts.evaluation.test_evaluators import opened
from tests.server.harness import frame
from tests.waiting import until_so

from runwatch.codec import encode_frame
from runwatch.vocabulary import RunId
from runwatch_server.alerts.assembly import EvaluationOwner
from runwatch_server.alerts.evaluation import evaluators
from runwatch_server.alerts.evaluation.run_evaluation import RunEvaluation
from runwatch_server.alerts.records import AlertFilter


def test_a_run_that_is_over_is_dropped_at_once_and_one_that_goes_on_is_not(
    start_service: StartService, clock: HandClock
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            judges = bench.alerting.evaluators
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
            clock.advance(60)
            await judges.drop_idle()
            going_on = judges.health.num_runs
            await bench.close()
            await judges.drop_idle()
            over = judges.health.num_runs
            await bench.send([*healthy(4), math.nan], first_step=10, late=True)
            await bench.settle()

            assert (going_on, over) == (1, 0)
            assert [alert.onset_step for alert in await bench.alerts()] == [14]

    asyncio.run(scenario())


def test_runs_beyond_those_that_are_held_are_judged_as_if_they_were(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = np.array([*healthy(150), 40.0, 41.0, *healthy(150)])
    parts = [(start, losses[start : start + 20]) for start in range(0, len(losses), 20)]

    async def send(bench: Bench, run_id: RunId, seq: int) -> None:
        first_step, part = parts[seq]
        sent = frame(seq + 1, part, first_step=first_step)
        await bench.ingest.put_frame(run_id, encode_frame(sent), proven=1, late=False)
        await until_so(lambda: bench.alerting.evaluators.is_drained(run_id))

    async def story(bench: Bench, run_id: RunId) -> list[tuple[object, ...]]:
        found = await bench.alerting.alerts.list(AlertFilter(run_id=run_id), limit=100)
        return [(a.rule, a.onset_step, a.firing_step, a.resolved_step) for a in found]

    async def scenario() -> None:
        async with start_service() as bench:
            held, *dropped = [await opened(bench) for _ in range(3)]
            for seq in range(len(parts)):
                await send(bench, held, seq)
            monkeypatch.setattr(evaluators, "_MOST_RUNS", 1)
            num_held: set[int] = set()
            for seq in range(len(parts)):
                for run_id in dropped:
                    await send(bench, run_id, seq)
                    num_held.add(bench.alerting.evaluators.health.num_runs)

            assert num_held == {1}
            wanted = await story(bench, held)
            assert wanted
            assert [await story(bench, run_id) for run_id in dropped] == [wanted, wanted]

    asyncio.run(scenario())


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
            judges = bench.alerting.evaluators
            owner = EvaluationOwner(judges, bench.alerting.ticker)
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
            with monkeypatch.context() as patched:
                patched.setattr(RunEvaluation, "save", save_slowly)
                releasing = asyncio.create_task(owner.can_release(RUN))
                await is_saving.wait()
                await bench.send([math.nan], first_step=10)
                assert judges.health.num_waiting == 1
                assert await bench.alerts() == []

                may_go_on.set()
                assert not await releasing
            await bench.settle()
            assert [alert.onset_step for alert in await bench.alerts()] == [10]
            assert judges.health.num_runs == 1

    asyncio.run(scenario())
