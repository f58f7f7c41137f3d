"""Rules about silence, judged by the clock."""

import asyncio
import sys
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from threading import Event as ThreadEvent

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.alerts.bench import ADMIN, RUN, Bench, StartService, healthy
from tests.waiting import LONGEST_S, until_so

from runwatch.alerts import AlertState
from runwatch.frames import Event
from runwatch.messages import AttemptOpen, Heartbeat, RunOpen
from runwatch.stalls import STALL, Stage, Stall
from runwatch.ulids import ulid
from runwatch.vocabulary import Phase, RunId
from runwatch_server.alerts.records import Resolution
from runwatch_server.rules.pack import split_file
from runwatch_server.runs.pause_watch import PauseWatch


async def beat(bench: Bench, *, step_age_s: float, phase: Phase = Phase.TRAIN) -> None:
    await bench.runs.note_heartbeat(RUN, Heartbeat(1, 0, 9, step_age_s, phase))


async def told(bench: Bench) -> list[tuple[str, AlertState]]:
    return [(alert.rule, alert.state) for alert in await bench.alerts()]


def test_a_run_that_speaks_but_makes_no_step_is_told_of(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301)
            await bench.alerting.ticker.tick()
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.FIRING)]

    asyncio.run(scenario())


def stall(place: str, stage: Stage, *, waits: bool) -> Event:
    told = Stall(45.0, stage, waits=waits, place=place, stack=(place, "train.py:1 in <module>"))
    return Event(9, STALL, 1_700_000_000.0, told.to_detail())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_rank_that_holds_up_the_others_is_named_by_what_each_told(
    start_service: StartService, is_restarted: bool
) -> None:
    places = (
        stall("train.py:40 in main", Stage.BACKWARD, waits=True),
        stall("data.py:17 in read", Stage.DATA, waits=False),
    )

    async def stands_still(bench: Bench) -> None:
        bench.clock.advance(301)
        for rank in range(2):
            await bench.runs.note_heartbeat(RUN, Heartbeat(1, rank, 9, 301, Phase.TRAIN))
        await bench.alerting.ticker.tick()

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=2)
            for rank, told in enumerate(places):
                await bench.send(healthy(10), first_step=0, rank=rank)
                await bench.send([], first_step=10, rank=rank, events=[told])
            await bench.settle()
            if not is_restarted:
                await stands_still(bench)
                await expect_named(bench)
        if is_restarted:
            async with start_service() as bench:
                await stands_still(bench)
                await stands_still(bench)
                await expect_named(bench)

    async def expect_named(bench: Bench) -> None:
        (alert,) = await bench.alerts()
        assert alert.facts.summary.startswith("no step for ")
        assert alert.facts.summary.endswith(
            "the last was 9: rank 1 stands in the data loader (data.py:17 in read), "
            "rank 0 stands in the backward pass (train.py:40 in main)"
        )
        card = (await bench.alerting.alerts.card(alert)).diagnosis
        assert [(one.rank, one.is_apart, one.stack[0]) for one in card.stalled] == [
            (1, True, "data.py:17 in read"),
            (0, False, "train.py:40 in main"),
        ]
        assert card.causes[0].cause == "a data loader that waits"
        assert card.causes[0].evidence == ("rank 1 stands in the data loader (data.py:17 in read)",)
        assert "Likely: a data loader that waits (rank 1 stands in" in card.short
        assert all(one.kind != STALL for one in card.changed_before)

    asyncio.run(scenario())


def test_the_silence_of_a_run_that_makes_its_steps_is_judged_without_a_question(
    start_service: StartService,
) -> None:
    """It is done every second, of each run."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
            await bench.alerting.ticker.tick()
            with statements() as asked:
                await bench.alerting.ticker.tick()
            assert asked == []

    asyncio.run(scenario())


def test_a_run_that_is_found_lost_is_looked_up_once(start_service: StartService) -> None:
    """Beside what is looked up as its alert is written; thousands may be lost at once."""

    async def scenario() -> None:
        async with start_service() as bench:
            await lose(bench, 3)
            with statements() as asked:
                await bench.alerting.ticker.tick()
            assert sum("signing_key" in one and "JOIN attempts" in one for one in asked) == 2 * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_run_that_lies_lost_is_judged_without_a_question(
    start_service: StartService, num_ranks: int
) -> None:
    """It is never over by itself: after a restart thousands may lie there, of which no word came
    since."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=num_ranks)
            await bench.send(healthy(10), first_step=0)
            await bench.settle()
        async with start_service() as bench:
            bench.liveness.open_attempt(RUN, 1, now=bench.clock.monotonic_s)
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
            with statements() as asked:
                await bench.alerting.ticker.tick()
            assert asked == []
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

    asyncio.run(scenario())


async def lose(bench: Bench, num_runs: int) -> None:
    for number in range(num_runs):
        run_id = RunId(ulid(100 + number, bytes(10)))
        await bench.runs.open(RunOpen(run_id, "lost"), ADMIN)
        await bench.runs.open_attempt(run_id, AttemptOpen(ulid(1, bytes(10)), 0.0), by="a test")
    bench.clock.advance(61)


async def num_calls_of(tick: Coroutine[None, None, None]) -> int:
    """Python's, in this thread."""
    num_calls = 0

    def note(_: object, kind: str, __: object) -> None:
        nonlocal num_calls
        num_calls += kind == "call"

    sys.setprofile(note)
    try:
        await tick
    finally:
        sys.setprofile(None)
    return num_calls


def test_each_run_that_lies_lost_costs_the_same_however_many_do(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        num_calls: list[int] = []
        async with start_service() as bench:
            for num_runs in (20, 80):
                await lose(bench, num_runs)
                await bench.alerting.ticker.tick()
                num_calls.append(await num_calls_of(bench.alerting.ticker.tick()))
        few, many = num_calls
        assert many < 5 * few

    asyncio.run(scenario())


def test_runs_that_fall_silent_at_once_are_written_together(start_service: StartService) -> None:
    """Ten thousand transactions, one after another, take minutes."""
    may_write = ThreadEvent()

    async def hold(_: AsyncConnection) -> None:
        may_write.wait(LONGEST_S)

    async def scenario() -> None:
        async with start_service() as bench:
            await lose(bench, 150)
            held = asyncio.create_task(bench.database.write(hold))
            round_ = asyncio.create_task(bench.alerting.ticker.tick())
            try:
                await until_so(lambda: bench.database.num_waiting >= 8)
            finally:
                may_write.set()
            await asyncio.gather(held, round_)

    asyncio.run(scenario())


def test_a_long_round_over_many_runs_is_told_as_progress(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await lose(bench, 150)
            ticker = bench.alerting.ticker
            assert ticker.age_s == 61
            round_ = asyncio.create_task(ticker.tick())
            await until_so(lambda: ticker.age_s == 0)
            assert not round_.done()
            await round_

    asyncio.run(scenario())


@contextmanager
def statements() -> Generator[list[str]]:
    """All that is asked of databases meanwhile."""
    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def show_pace(bench: Bench, *, pause_s: float = 1.0) -> None:
    """Frame after frame, one of them after a pause; a step's time is its number."""
    step = 0
    for number in range(20):
        pace_s = pause_s if number == 10 else 1.0
        bench.clock.advance(pace_s)
        step += int(pace_s)
        await bench.send(healthy(1), first_step=step)


def test_a_run_that_has_shown_its_pace_is_missed_after_a_minute(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await show_pace(bench)
            bench.clock.advance(61)
            await beat(bench, step_age_s=61)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("StepOverdue", AlertState.FIRING)]

    asyncio.run(scenario())


def test_where_no_step_pages_the_warning_before_it_is_folded_under_it(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await show_pace(bench)
            for age_s in (61, 301):
                bench.clock.advance(61 if age_s == 61 else 240)
                await beat(bench, step_age_s=age_s)
                await bench.alerting.ticker.tick()
                await bench.alerting.ticker.tick()
            alerts = {alert.rule: alert for alert in await bench.alerts()}
            assert {name: alert.state for name, alert in alerts.items()} == {
                "StepOverdue": AlertState.FIRING,
                "NoStep": AlertState.FIRING,
            }
            assert alerts["StepOverdue"].inhibited_by == "NoStep"
            assert alerts["NoStep"].inhibited_by is None
            await bench.send(healthy(1), first_step=21)
            await bench.alerting.ticker.tick()
            assert {alert.state for alert in await bench.alerts()} == {AlertState.RESOLVED}

    asyncio.run(scenario())


def test_a_pause_that_the_run_came_back_from_alarms_no_more(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await show_pace(bench, pause_s=50.0)
            bench.clock.advance(140)
            await beat(bench, step_age_s=140)
            await bench.alerting.ticker.tick()
            assert await told(bench) == []
            bench.clock.advance(20)
            await beat(bench, step_age_s=160)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("StepOverdue", AlertState.FIRING)]

    asyncio.run(scenario())


def test_a_step_ends_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301)
            await bench.alerting.ticker.tick()
            await bench.send(healthy(1), first_step=10)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_long_checkpoint_is_no_silence(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301, phase=Phase.CHECKPOINT)
            await bench.alerting.ticker.tick()
            assert await told(bench) == []

    asyncio.run(scenario())


async def evaluate(bench: Bench, *, step: int, seconds: float) -> None:
    """A step, and an evaluation after it that ends in order."""
    at = bench.clock.wall_s
    events = [
        Event(step, kind="phase", at=at, detail={"phase": "eval", "edge": "begin"}),
        Event(step, kind="phase", at=at + seconds, detail={"phase": "eval", "edge": "end"}),
    ]
    await bench.send(healthy(1), first_step=step, events=events)


async def evaluating(bench: Bench, *, seconds: float) -> None:
    """The run has been in an evaluation for so long."""
    bench.clock.advance(seconds)
    await beat(bench, step_age_s=seconds, phase=Phase.EVAL)
    await bench.alerting.ticker.tick()


def test_an_evaluation_is_overdue_by_the_ones_before_it_though_the_service_was_restarted(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await evaluate(bench, step=8, seconds=30.0)
            await evaluate(bench, step=9, seconds=20.0)
        async with start_service() as bench:
            await evaluating(bench, seconds=149.0)
            assert await told(bench) == []
            await evaluating(bench, seconds=155.0)
            assert await told(bench) == [("PhaseOverdue", AlertState.FIRING)]
            [alert] = await bench.alerts()
            assert "eval has lasted 155 s after step 9" in alert.facts.summary
            await bench.send(healthy(1), first_step=10, seq=3)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("PhaseOverdue", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_first_evaluation_may_take_its_time(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await evaluating(bench, seconds=1700.0)
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_beginning_that_never_ends_is_told_by_its_name(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            for _ in range(20):
                bench.clock.advance(50)
                await bench.runs.note_heartbeat(RUN, Heartbeat(1, 0, None, 50.0, Phase.INIT))
                await bench.alerting.ticker.tick()
            assert await told(bench) == [("PhaseOverdue", AlertState.FIRING)]
            [alert] = await bench.alerts()
            assert "the phase init" in alert.facts.summary

    asyncio.run(scenario())


def test_a_silent_process_is_lost_and_not_also_without_a_step(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(400)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

    asyncio.run(scenario())


async def use(bench: Bench, *rules: Mapping[str, object]) -> None:
    filed = split_file({"version": 1, "groups": [{"name": "own", "rules": list(rules)}]})
    await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")


def test_the_alert_of_a_rule_that_is_removed_ends(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            rules = bench.alerting.rules
            await use(bench, {"alert": "Hurry", "absence": {"timeout_s": 30}})
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(31)
            await beat(bench, step_age_s=31)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("Hurry", AlertState.FIRING)]

            [rule] = await rules.list_all(None)
            await rules.delete(rule.id, version=rule.version, actor="tests")
            await bench.alerting.ticker.tick()
            [alert] = await bench.alerts()
            assert (alert.state, alert.resolution) == (
                AlertState.RESOLVED,
                Resolution.RULE_CHANGED,
            )

    asyncio.run(scenario())


ON_TRIAL: dict[str, object] = {
    "alert": "OnTrial",
    "absence": {"timeout_s": 30},
    "shadow": True,
    "actions": [{"checkpoint": {}}],
}


def test_a_rule_on_trial_is_kept_and_does_nothing(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await use(bench, ON_TRIAL)
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(31)
            await beat(bench, step_age_s=31)
            await bench.alerting.ticker.tick()
            [alert] = await bench.alerts()
            assert (alert.rule, alert.state) == ("OnTrial", AlertState.FIRING)
            assert (alert.shadow, alert.is_notifiable) == (True, False)
            assert await bench.commands() == []

    asyncio.run(scenario())


def test_a_rule_on_trial_explains_no_other(start_service: StartService) -> None:
    explained: dict[str, object] = {
        "alert": "Late",
        "absence": {"timeout_s": 30},
        "inhibited_by": [{"rules": ["OnTrial"]}],
    }

    async def look(bench: Bench, *, age_s: float) -> None:
        await beat(bench, step_age_s=age_s)
        await bench.alerting.ticker.tick()
        assert {alert.rule: alert.is_notifiable for alert in await bench.alerts()} == {
            "OnTrial": False,
            "Late": True,
        }

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await use(bench, ON_TRIAL, explained)
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(31)
            await look(bench, age_s=31)
        async with start_service() as bench:
            await look(bench, age_s=32)

    asyncio.run(scenario())


def test_a_restart_neither_doubles_nor_forgets_an_alert_about_silence(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
        async with start_service() as bench:
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

            await beat(bench, step_age_s=200)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_after_a_restart_an_alert_about_steps_stays_until_one_is_made(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            bench.clock.advance(301)
            await beat(bench, step_age_s=301)
            await bench.alerting.ticker.tick()
        async with start_service() as bench:
            bench.clock.advance(1)
            await beat(bench, step_age_s=302)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.FIRING)]

            await bench.send(healthy(1), first_step=10, seq=2)
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("NoStep", AlertState.RESOLVED)]

    asyncio.run(scenario())


def test_a_run_that_was_lost_while_the_service_was_away_is_told_by_its_last_step(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
        async with start_service() as bench:
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
            [alert] = await bench.alerts()
            assert (alert.rule, alert.onset_step, alert.last_step) == ("RunLost", 9, 9)

    asyncio.run(scenario())


def test_the_service_s_own_absence_is_nobody_s_silence(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
        bench.clock.advance(3600)
        async with start_service() as bench:
            await bench.alerting.ticker.tick()
            assert await told(bench) == []

    asyncio.run(scenario())


def test_a_run_may_be_lost_twice_after_the_same_step(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            for _ in range(2):
                await bench.send(healthy(1), first_step=0)
                bench.clock.advance(61)
                await bench.alerting.ticker.tick()
                await beat(bench, step_age_s=0)
                await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.RESOLVED)] * 2

    asyncio.run(scenario())


def test_a_pause_of_the_service_is_no_silence_also_before_it_is_noted(
    start_service: StartService,
) -> None:
    """A round may go on after a pause before anything else comes to its turn."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            pauses = PauseWatch(bench.clock.as_clock(), bench.liveness)
            pauses.beat()
            bench.clock.advance(61)
            await bench.alerting.ticker.tick()
            pauses.beat()
            await bench.alerting.ticker.tick()
            assert await told(bench) == []
            for _ in range(61):
                bench.clock.advance(1)
                pauses.beat()
            await bench.alerting.ticker.tick()
            assert await told(bench) == [("RunLost", AlertState.FIRING)]

    asyncio.run(scenario())
