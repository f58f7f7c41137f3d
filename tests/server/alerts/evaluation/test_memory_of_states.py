"""What evaluators remember of all runs takes no more memory than the budget: runs are saved and
dropped for others, or wait, and are judged as if all were held."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest
from tests.server.alerts.bench import Bench, HandClock, start
from tests.server.alerts.evaluation.test_evaluators import opened
from tests.server.harness import Storage, both_engines, frame
from tests.waiting import until_so

from runwatch.codec import encode_frame
from runwatch.vocabulary import RunId
from runwatch_server.alerts.evaluation.state_budget import Needs, StateBudget
from runwatch_server.alerts.records import AlertFilter

MIB = 2**20
LOSSES = np.array([*[2.0] * 130, 40.0, 41.0, *[2.0] * 130])
PARTS = [(start, LOSSES[start : start + 40]) for start in range(0, len(LOSSES), 40)]
ONE, TWO = RunId("one"), RunId("two")


async def send(bench: Bench, run_id: RunId, seq: int) -> None:
    first_step, part = PARTS[seq - 1]
    sent = frame(seq, part, first_step=first_step)
    await bench.ingest.put_frame(run_id, encode_frame(sent), proven=1, late=False)


async def drained(bench: Bench, run_id: RunId) -> None:
    await until_so(lambda: bench.alerting.evaluators.is_drained(run_id))


async def story(bench: Bench, run_id: RunId) -> list[tuple[object, ...]]:
    found = await bench.alerting.alerts.list(AlertFilter(run_id=run_id), limit=100)
    return [(a.rule, a.onset_step, a.firing_step, a.resolved_step) for a in found]


@both_engines
@pytest.mark.parametrize("judge_processes", [0, 1])
def test_runs_beyond_the_budget_are_judged_as_if_they_were_held(
    storage: Storage, clock: HandClock, judge_processes: int
) -> None:
    async def stories(states_mib: int) -> tuple[list[object], set[int]]:
        async with AsyncExitStack() as stack:
            bench = await start(
                stack, storage, clock, judge_processes=judge_processes, states_mib=states_mib
            )
            runs = [await opened(bench) for _ in range(3)]
            held: set[int] = set()
            for seq in range(1, len(PARTS) + 1):
                for run_id in runs:
                    await send(bench, run_id, seq)
                    await drained(bench, run_id)
                    health = bench.alerting.evaluators.health
                    held.add(health.num_runs)
                    assert health.state_bytes <= states_mib * MIB
            return [await story(bench, run_id) for run_id in runs], held

    async def scenario() -> None:
        wanted, _ = await stories(2048)
        assert wanted[0]
        found, held = await stories(2)
        assert max(held) == 2  # of three: each takes half a MiB, and a project has one of two MiB
        assert found == wanted

    asyncio.run(scenario())


def test_a_run_that_finds_no_room_waits_until_another_has_nothing_to_judge(
    storage: Storage, clock: HandClock
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bench = await start(stack, storage, clock, states_mib=1)
            judges = bench.alerting.evaluators
            first, second = await opened(bench), await opened(bench)
            await send(bench, first, 1)
            await drained(bench, first)
            await send(bench, first, 3)  # waits for the second, and is not drained
            await bench.pause_of_evaluators()
            await send(bench, second, 1)
            await bench.pause_of_evaluators()
            assert not judges.is_drained(second)

            await send(bench, first, 2)
            await drained(bench, first)
            await drained(bench, second)
            assert judges.health.num_waiting == 0

    asyncio.run(scenario())


def test_a_project_has_half_of_what_is_left_to_it_and_the_others() -> None:
    budget = StateBudget(100)
    budget.hold(ONE, Needs("flood", 50))

    assert not budget.fits(Needs("flood", 1))
    assert budget.fits(Needs("quiet", 50))


def test_a_run_that_takes_more_than_half_is_loaded_all_the_same() -> None:
    budget = StateBudget(100)

    assert budget.fits(Needs("wide", 1000))
    budget.hold(ONE, Needs("wide", 1000))
    assert not budget.fits(Needs("quiet", 1))
    budget.drop(ONE)
    assert budget.fits(Needs("quiet", 1))


def test_a_run_counts_once_and_its_project_is_that_with_most() -> None:
    budget = StateBudget(100)
    budget.hold(ONE, Needs("one", 40))
    budget.hold(TWO, Needs("two", 10))
    assert (budget.largest, budget.used_bytes) == ("one", 50)

    budget.hold(ONE, Needs("one", 5))
    assert (budget.largest, budget.used_bytes) == ("two", 15)
    budget.drop(ONE)
    budget.drop(TWO)
    assert (budget.largest, budget.used_bytes) == (None, 0)
