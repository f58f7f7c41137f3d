"""Frames in, alerts out: in order, once, and alike after a restart."""

import asyncio
import math
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from tests.server.alerts.bench import ADMIN, RUN, Bench, StartService, healthy, rule_file
from tests.server.harness import both_engines, frame, new_id
from tests.waiting import until_so

from runwatch.alerts import AlertState
from runwatch.codec import encode_frame
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.threaded import ThreadJudging
from runwatch_server.rules.pack import FiledRule, split_file
from runwatch_server.telemetry.committed_frames import CommittedFrame
from runwatch_server.telemetry.events import list_events

pytestmark = both_engines

_MORE_THAN_READERS: Final = 24


def file_of(name: str, when: str, summary: str = "Words.") -> tuple[FiledRule, ...]:
    rule = {"alert": name, "scope": "run", "when": when, "annotations": {"summary": summary}}
    return split_file({"version": 1, "groups": [{"name": "tests", "rules": [rule]}]})


async def story(bench: Bench) -> list[tuple[str, str, int, int | None, int | None]]:
    """All that is to be the same however the service was disturbed."""
    return [
        (alert.rule, alert.state, alert.onset_step, alert.firing_step, alert.resolved_step)
        for alert in await bench.alerts()
    ]


def test_a_loss_that_is_not_finite_fires_the_rule_that_nobody_can_remove(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.send([math.nan], first_step=10, nonfinite=(0.0, 3.0))
            await bench.settle()
            (alert,) = await bench.alerts()

            assert alert.rule == "NonFinite"
            assert alert.state is AlertState.FIRING
            assert (alert.onset_step, alert.firing_step) == (10, 10)
            assert (alert.facts.first_layer, alert.facts.layers) == (None, ("head",))
            assert alert.facts.summary.startswith("loss NaN at step ")

    asyncio.run(scenario())


def test_a_frame_that_changes_nothing_wakes_nobody_who_waits_for_news(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
            waiter = bench.alerting.announcer.waiter()

            await bench.send(healthy(10), first_step=10)
            await bench.settle()
            assert not waiter.is_set()

            await bench.send([math.nan], first_step=20)
            await bench.settle()
            assert waiter.is_set()

    asyncio.run(scenario())


def test_frames_that_overtake_each_other_are_judged_in_order(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(30), first_step=20, seq=3)
            await bench.send([math.nan] * 10, first_step=10, seq=2)
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.settle()

            assert await story(bench) == [("NonFinite", "resolved", 10, 10, 40)]

    asyncio.run(scenario())


def test_a_frame_that_never_comes_is_passed_over_after_half_a_minute(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0, seq=1)
            await bench.send([math.nan], first_step=20, seq=3)
            await bench.pause_of_evaluators()
            assert await bench.alerts() == []

            bench.clock.advance(31)
            await bench.alerting.evaluators.catch_up()
            await bench.settle()
            (alert,) = await bench.alerts()
            async with bench.database.read() as connection:
                (gap,) = await list_events(connection, RUN, kinds=("gap",))
            assert alert.onset_step == 20
            assert gap.detail == {"first_seq": 2, "num_frames": 1}
            assert bench.alerting.evaluators.health.num_missing == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [5, 10, 12, 25, 35])
def test_a_restart_changes_nothing_in_the_alerts(start_service: StartService, cut: int) -> None:
    losses = [*healthy(10), *[math.nan] * 5, *healthy(40)]

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            for step in range(cut):
                await bench.send([losses[step]], first_step=step, seq=step + 1)
        async with start_service() as bench:
            for step in range(cut, len(losses)):
                await bench.send([losses[step]], first_step=step, seq=step + 1)
            await bench.settle()
            assert await story(bench) == [("NonFinite", "resolved", 10, 10, 35)]

    asyncio.run(scenario())


def test_a_run_that_another_replica_takes_before_its_turn_is_no_failure(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            evaluators = bench.alerting.evaluators
            sent = frame(1, healthy(3))
            evaluators.committed(
                CommittedFrame(run_id=RUN, attempt=1, rank=0, seq=1, frame=sent, layout=None)
            )
            evaluators.drop(RUN)
            await bench.settle()

            assert evaluators.health.num_failures == 0
            assert evaluators.health.is_well

    asyncio.run(scenario())


def test_more_frames_than_fit_in_memory_are_read_back_from_disk(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            for step in range(1, 150):
                loss = math.nan if step == 140 else 2.0
                await bench.send([loss], first_step=step, seq=step + 1)
            assert await bench.alerts() == []

            await bench.send([2.0], first_step=0, seq=1)
            await bench.settle()
            assert [alert.onset_step for alert in await bench.alerts()] == [140]

    asyncio.run(scenario())


def test_a_rule_that_is_added_starts_cold_and_survives_a_restart(
    start_service: StartService,
) -> None:
    filed = split_file(rule_file("Low", "loss < 2.5", for_steps=4))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(20), first_step=0)
            await bench.settle()
            await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.send(healthy(3), first_step=20)
            await bench.settle()
        async with start_service() as bench:
            await bench.send(healthy(3), first_step=23, seq=3)
            await bench.settle()
            assert await story(bench) == [("Low", "firing", 20, 24, None)]

    asyncio.run(scenario())


def test_a_rule_that_is_removed_takes_its_open_alert_with_it(start_service: StartService) -> None:
    filed = split_file(rule_file("Low", "loss < 2.5"))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            (rule,) = await bench.alerting.rules.create(
                filed, project="", enabled=True, actor="tests"
            )
            await bench.send(healthy(3), first_step=0)
            await bench.settle()
            await bench.alerting.rules.delete(rule.id, version=1, actor="tests")
            await bench.send(healthy(3), first_step=3)
            await bench.settle()
            assert [alert.state for alert in await bench.alerts()] == [AlertState.RESOLVED]

    asyncio.run(scenario())


def test_a_rule_whose_texts_alone_change_keeps_its_past_and_its_alert(
    start_service: StartService,
) -> None:
    """As when the service is replaced by a version that words its rules in another way."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            rules = bench.alerting.rules
            conditions = {"Low": "loss < 2.5", "Fell": "loss < 0.5 * median(loss, 16)"}
            stored = [
                await rules.create(file_of(*one), project="", enabled=True, actor="tests")
                for one in conditions.items()
            ]
            await bench.send(healthy(20), first_step=0)
            await bench.settle()
            for (rule,), one in zip(stored, conditions.items(), strict=True):
                file = file_of(*one, summary="Other words.")
                await rules.replace(rule.id, file, version=1, enabled=True, actor="tests")
            await bench.send([0.1], first_step=20)
            await bench.settle()
            assert sorted(await story(bench)) == [
                ("Fell", "firing", 20, 20, None),
                ("Low", "firing", 0, 0, None),
            ]

    asyncio.run(scenario())


def test_a_new_attempt_starts_with_a_clean_sheet(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send([math.nan], first_step=0)
            await bench.settle()
            attempt = await bench.open()
            await bench.send(healthy(2), first_step=0, attempt=attempt)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert (alert.attempt, alert.state) == (1, AlertState.RESOLVED)

    asyncio.run(scenario())


def test_the_end_of_a_run_resolves_what_is_open(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send([math.nan], first_step=0)
            await bench.settle()
            await bench.close()
            await bench.alerting.ticker.tick_slowly()
            (alert,) = await bench.alerts()
            assert alert.state is AlertState.RESOLVED

    asyncio.run(scenario())


def test_frames_sent_after_the_fact_are_judged_but_command_nothing(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.open()
            await bench.send([math.nan], first_step=0, attempt=1, late=True)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.state is AlertState.FIRING
            assert not alert.live
            assert await bench.commands() == []

    asyncio.run(scenario())


def test_a_frame_that_cannot_be_judged_shows_and_stops_no_other_run(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(3), first_step=0)
            await bench.settle()
            await bench.alerting.evaluators.forget(RUN)
            await bench.spoil_state(msgspec.msgpack.encode("no state"))
            await bench.send(healthy(3), first_step=3)
            await until_so(lambda: bench.alerting.evaluators.health.num_failures > 0)
            assert bench.alerting.evaluators.health.failing_runs == (RUN,)
            assert not bench.alerting.evaluators.health.is_well

    asyncio.run(scenario())


def test_runs_that_wait_for_their_judges_leave_readers_to_others(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            turn, waiting = asyncio.Event(), list[RunId]()
            open_judge = ThreadJudging.open

            async def open_in_turn(
                judging: ThreadJudging, run_id: RunId, *args: Any, **more: Any
            ) -> Any:
                waiting.append(run_id)
                await turn.wait()
                return await open_judge(judging, run_id, *args, **more)

            monkeypatch.setattr(ThreadJudging, "open", open_in_turn)
            run_ids = [await opened(bench) for _ in range(_MORE_THAN_READERS)]
            for run_id in run_ids:
                await bench.ingest.put_frame(
                    run_id, encode_frame(frame(1, [2.0])), proven=1, late=False
                )
            await until_so(lambda: len(waiting) == len(run_ids))

            await bench.database.ping()

            turn.set()
            for run_id in run_ids:
                await until_so(partial(bench.alerting.evaluators.is_drained, run_id))

    asyncio.run(scenario())


async def opened(bench: Bench) -> RunId:
    """A run beside the bench's own."""
    run_id = new_id()
    await bench.runs.open(RunOpen(run_id, "another"), ADMIN)
    await bench.runs.open_attempt(run_id, AttemptOpen(run_id, 0.0), by="a test")
    return run_id
