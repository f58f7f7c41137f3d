"""A trouble that comes and goes is told once, and acted upon each time."""

import math
import re
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest
import yaml
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve
from tests.server.notify.factories import FIRED_AT, a_case
from tests.server.notify.sink import Sink
from tests.server.notify.trainer import RULE, Trainer, new_trainer, rule_file
from tests.waiting import until_so

from runwatch.vocabulary import AlertId
from runwatch_server.alerts.records import Resolution
from runwatch_server.notify.records import TimeBefore
from runwatch_server.notify.settling import is_milestone, is_soon, settles_at

Test = TypeVar("Test")


def of_service(test: Test) -> Test:
    """Of a service, over either database."""
    return cast(Test, pytest.mark.anyio(both_engines(test)))


@pytest.fixture
async def trainer(told: Api, hand_clock: HandClock) -> Trainer:
    return await new_trainer(told, hand_clock)


def titles(sink: Sink) -> list[str]:
    """Without the run, and without what happened."""
    found = [body["title"].partition(" in run test (default)") for body in sink.bodies]
    return [before + re.sub(r"(?<!again): .*", "", rest) for before, _, rest in found]


FIRST = ["[critical] TooHigh", "[resolved] TooHigh"]
AGAIN = "[critical] TooHigh, again: {} times"


@of_service
async def test_its_second_time_is_told_and_then_twice_as_many_each_time(
    trainer: Trainer, sink: Sink
) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(7)

    assert titles(sink) == [*FIRST, *(AGAIN.format(times) for times in (2, 4, 8))]
    assert len({body["dedup_key"] for body in sink.bodies[2:]}) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("every_steps", [30, 41, 50, 80])
async def test_a_loss_that_is_no_number_now_and_then_is_told_twice(
    told: Api, hand_clock: HandClock, sink: Sink, every_steps: int
) -> None:
    run_id = await told.new_run()
    trainer = Trainer(told, hand_clock, run_id, metric="loss", bad=math.nan)
    for _ in range(6):
        await trainer.break_down()
        await trainer.recover(every_steps - 1)
        hand_clock.now += 10

    ours = [title for title in titles(sink) if "NonFinite" in title and "resolved" not in title]
    assert ours == ["[critical] NonFinite", "[critical] NonFinite, again: 2 times"]


@of_service
async def test_its_end_is_told_once_the_run_has_been_without_it_for_512_steps(
    trainer: Trainer, sink: Sink
) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(2)
    await trainer.recover(600)
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink)[3] == "[resolved] TooHigh, after 3 times"
    assert sink.bodies[3]["dedup_key"] == sink.bodies[2]["dedup_key"]
    assert sink.bodies[3]["type"] == "success"


@of_service
async def test_what_comes_back_after_long_is_told_anew(trainer: Trainer, sink: Sink) -> None:
    await trainer.come_and_go(1)
    await trainer.recover(2000)
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink) == FIRST * 2


@of_service
async def test_it_is_acted_upon_each_time(trainer: Trainer, sink: Sink) -> None:
    path = f"/runs/{trainer.run_id}/commands"
    await trainer.come_and_go(5)

    commands = (await trainer.told.json("GET", path))["commands"]
    assert [one["action"]["before_step"] for one in commands] == [124, 93, 62, 31, 0]


@of_service
async def test_who_is_asked_for_each_action_hears_of_each_time(
    trainer: Trainer, sink: Sink
) -> None:
    await trainer.told.json("PATCH", f"/runs/{trainer.run_id}", json={"policy": "ask"})
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(2)

    assert titles(sink) == [*FIRST, AGAIN.format(2), AGAIN.format(3)]


@of_service
async def test_what_does_not_pass_this_time_is_told(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(1)
    await trainer.send([9.0] * 100)
    hand_clock.now += 901
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink)[3] == AGAIN.format(3)


@of_service
async def test_its_end_is_told_with_that_of_the_run(trainer: Trainer, sink: Sink) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(1)
    closing = {"status": "finished"}
    await trainer.told.json("POST", f"/runs/{trainer.run_id}/attempts/1/close", json=closing)
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink)[3] == "[resolved] TooHigh, after 2 times"


@of_service
async def test_a_new_attempt_begins_with_a_first_time(trainer: Trainer, sink: Sink) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(1)
    await trainer.told.new_attempt(trainer.run_id)
    await until_so(lambda: len(sink.posts) == 4)
    await trainer.told.post(trainer.run_id, frame(1, [2.0, 9.0], attempt=2, metric="heat"))
    await trainer.told.until_judged(trainer.run_id)
    trainer.clock.now += 3
    await until_so(lambda: len(sink.posts) == 5)

    assert titles(sink)[4] == FIRST[0]


@of_service
async def test_its_end_waits_for_four_hours_at_most(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    await trainer.come_and_go(1)
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.come_and_go(1)
    hand_clock.now += 4 * 3600 + 1
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink)[3] == "[resolved] TooHigh, after 2 times"


@of_service
async def test_what_came_and_went_while_nobody_looked_is_one_incident(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    await trainer.send([9.0, *[2.0] * 30] * 6)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    hand_clock.now += 6
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.recover(600)
    await until_so(lambda: len(sink.posts) == 3)

    assert titles(sink) == [
        AGAIN.format(6),
        "[resolved] TooHigh, 1 still open",
        "[resolved] TooHigh, after 6 times",
    ]
    assert len({body["dedup_key"] for body in sink.bodies}) == 1


@pytest.mark.usefixtures("quick_looks")
@of_service
async def test_a_restart_forgets_nothing_of_it(
    storage: Storage, receivers: dict[str, Any], sink: Sink, hand_clock: HandClock
) -> None:
    (storage.data_dir / "receivers.yaml").write_text(yaml.safe_dump(receivers))
    async with serve(storage, clock=hand_clock) as api:
        trainer = await new_trainer(api, hand_clock)
        await trainer.come_and_go(1)
        await until_so(lambda: len(sink.posts) == 2)
        await trainer.come_and_go(1)
    async with serve(storage, clock=hand_clock, admin_key=api.admin_key) as again:
        restarted = replace(trainer, told=again)
        await restarted.come_and_go(2)
        await restarted.recover(600)
        await until_so(lambda: len(sink.posts) == 5)

    assert titles(sink)[2:] == [
        AGAIN.format(2),
        AGAIN.format(4),
        "[resolved] TooHigh, after 4 times",
    ]


@of_service
async def test_an_incident_is_not_over_while_a_part_of_it_may_come_back(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    """Who has it open must not close it when something else in it ends: of the next time nobody
    would hear."""
    other = RULE | {"alert": "Higher", "when": "heat > 7", "keep_firing_for": {"steps": 8}}
    await trainer.break_down()
    await trainer.recover()
    await until_so(lambda: len(sink.posts) == 2)
    await trainer.told.json("POST", "/rules", json=rule_file(other))
    await trainer.break_down()
    await trainer.recover()
    await until_so(lambda: len(sink.posts) == 4)

    assert titles(sink)[3] == "[resolved] Higher, 1 still open"
    assert sink.bodies[3]["type"] != "success"


BEFORE = TimeBefore(AlertId("1" * 26), times=3, resolved_step=1000)


@pytest.mark.parametrize(
    ("step", "expected"), [(1001, True), (1512, True), (1513, False), (5, True)]
)
def test_what_fires_within_512_steps_is_the_same_trouble(step: int, expected: bool) -> None:
    assert is_soon(BEFORE, step) is expected


@pytest.mark.parametrize(
    ("times", "resolution", "expected"),
    [
        (1, Resolution.RECOVERED, None),
        (2, Resolution.RECOVERED, 812),
        (2, Resolution.RUN_ENDED, None),
        (2, Resolution.RULE_CHANGED, None),
    ],
)
def test_the_end_of_what_came_once_or_did_not_recover_is_told_at_once(
    times: int, resolution: Resolution, expected: int | None
) -> None:
    alert = a_case(resolved_at=FIRED_AT, resolved_step=300, resolution=resolution).alert

    assert settles_at(alert, times) == expected


def test_milestones_lie_twice_as_far_each_time() -> None:
    assert [times for times in range(1, 40) if is_milestone(times)] == [1, 2, 4, 8, 16, 32]
