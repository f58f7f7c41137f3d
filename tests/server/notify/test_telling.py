"""A receiver of our own, from the bad value to the message: over real HTTP, through Apprise."""

import math
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.samples import Sample
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, HandClock, both_engines, frame, new_id
from tests.server.notify.sink import Sink
from tests.waiting import LONGEST_S, until_so, until_told

from runwatch.vocabulary import RunId
from runwatch_server.alerts.tables import alerts
from runwatch_server.notify import dispatcher as dispatcher
from runwatch_server.notify.tables import silences

pytestmark = [pytest.mark.anyio, both_engines]


async def break_run(api: Api, *, project: str = "default") -> RunId:
    """A run whose loss is no number any more."""
    run_id = await api.new_run(project=project)
    await api.post(run_id, frame(1, [2.0, math.nan]))
    await until_alert(api, run_id, "firing")
    return run_id


async def heal_run(api: Api, run_id: RunId) -> None:
    await api.post(run_id, frame(2, [2.0] * 60, first_step=2))
    await until_alert(api, run_id, "resolved")


async def until_alert(api: Api, run_id: RunId, state: str) -> None:
    """Not by what is drained: a replica whose clock jumped takes its runs up again first."""
    path = f"/alerts?run_id={run_id}&state={state}"

    async def found() -> object:
        return (await api.json("GET", path))["alerts"]

    await until_told(found)


async def deliveries(api: Api) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = await api.json("GET", "/notifications")
    return found["notifications"]


async def states(api: Api) -> list[tuple[str, str]]:
    return [(one["kind"], one["state"]) for one in await deliveries(api)]


async def until_noted(api: Api, clock: HandClock) -> None:
    """Until the service has written down what came of its last try, before the clock moves on:
    the next one is reckoned from then."""
    now = datetime.fromtimestamp(clock.now, UTC)

    async def are_noted() -> bool:
        return all(_is_noted(one, now) for one in await deliveries(api))

    await until_told(are_noted)


def _is_noted(delivery: dict[str, Any], now: datetime) -> bool:
    if delivery["state"] == "waiting":
        # A replica that claims it puts its date off as well, before anything is sent.
        is_put_off = datetime.fromisoformat(delivery["due_at"]) > now
        return is_put_off and delivery["attempts"] > 0
    delivered_at = datetime.fromisoformat(delivery["delivered_at"])
    return abs((now - delivered_at).total_seconds()) < 0.001


async def test_people_hear_that_it_fires_and_that_it_is_over(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    run_id = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await heal_run(told, run_id)
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 2)

    fired, over = sink.bodies
    assert fired["title"].startswith("[critical] NonFinite")
    assert ": loss NaN at step " in fired["title"]
    assert "Since: step 1 " in fired["message"]
    assert f"Run: https://runwatch.test/runs/{run_id}?step=1" in fired["message"]
    assert fired["type"] == "failure"
    assert over["title"].startswith("[resolved] NonFinite")
    assert over["type"] == "success"
    assert over["dedup_key"] == fired["dedup_key"]
    assert len(fired["dedup_key"]) == 26


async def test_two_runs_that_fail_alike_are_two_incidents(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    await break_run(told)
    await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 2)

    first, second = sink.bodies
    assert first["dedup_key"] != second["dedup_key"]


async def test_a_receiver_that_refuses_is_tried_again_until_it_takes(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    sink.answer = lambda _: 503
    await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    sink.answer = lambda _: 200
    hand_clock.now += 6
    await until_so(lambda: len(sink.posts) == 2)

    assert sink.bodies[0]["dedup_key"] == sink.bodies[1]["dedup_key"]


async def test_a_beginning_that_arrives_after_the_end_is_told_as_what_it_was(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    sink.answer = lambda _: 500
    run_id = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    await heal_run(told, run_id)
    since = datetime.fromtimestamp(hand_clock.now, UTC).strftime("%H:%M")
    sink.answer = lambda _: 200
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 2)
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 3)

    assert [(body["title"].split("]")[0], body["type"]) for body in sink.bodies] == [
        ("[critical", "failure"),
        (f"[critical, over since {since}", "failure"),
        ("[resolved", "success"),
    ]


async def test_after_a_day_of_refusals_a_delivery_is_dead_and_shows(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    sink.answer = lambda _: 503
    await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    hand_clock.now += 86401
    await until_so(lambda: len(sink.posts) == 2)
    await until_so(lambda: "dead" in dead_of(told))

    assert await states(told) == [("firing", "dead")]
    [given_up] = samples_of(told, "runwatch_receiver_given_up_total")
    assert (given_up.labels, given_up.value) == ({"receiver": "team"}, 1)


def dead_of(api: Api) -> str:
    named = samples_of(api, "runwatch_deliveries")
    return " ".join(sample.labels["state"] for sample in named if sample.value)


def samples_of(api: Api, name: str) -> list[Sample]:
    families = api.services.metrics.registry.collect()
    return [sample for family in families for sample in family.samples if sample.name == name]


async def test_a_receiver_that_does_not_end_its_answer_is_waited_for_so_long_and_no_longer(
    told: Api, sink: Sink, hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "ATTEMPT_S", 1.0)
    may_end = threading.Event()
    sink.answer = lambda _: 200 if may_end.wait(LONGEST_S) else 500
    await break_run(told)
    await until_tried(sink, hand_clock, num_posts=1)
    await until_noted(told, hand_clock)
    assert await states(told) == [("firing", "waiting")]

    await until_tried(sink, hand_clock, num_posts=2)  # the first try was cut off
    monkeypatch.setattr(dispatcher, "ATTEMPT_S", 30.0)
    may_end.set()

    async def is_delivered() -> bool:
        hand_clock.now += 10
        return await states(told) == [("firing", "delivered")]

    await until_told(is_delivered)


async def until_tried(sink: Sink, clock: HandClock, *, num_posts: int) -> None:
    """Until so many tries have reached the receiver. The clock goes on meanwhile: on a busy machine
    one is cut off before it has sent anything, or comes while the thread of the one before has yet
    to end."""

    async def is_tried() -> bool:
        clock.now += 10
        return len(sink.posts) >= num_posts

    await until_told(is_tried)


async def test_what_goes_on_is_repeated_until_somebody_looks_after_it(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    run_id = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    hand_clock.now += 3601
    await until_so(lambda: len(sink.posts) == 2)
    await until_noted(told, hand_clock)
    (alert,) = (await told.json("GET", f"/alerts?run_id={run_id}&rule=NonFinite"))["alerts"]
    await told.json("POST", f"/alerts/{alert['id']}/ack", json={"note": "on it"})
    hand_clock.now += 3601
    other = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 3)

    assert other in sink.bodies[2]["message"]


async def test_a_silence_holds_back_what_matches_and_its_end_lets_it_go(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    silence = await silence_project(told, "noisy", hand_clock)
    held = await break_run(told, project="noisy")
    heard = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    assert heard in sink.bodies[0]["message"]

    await told.call("DELETE", f"/silences/{silence['id']}")
    hand_clock.now += 6
    await until_so(lambda: len(sink.posts) == 2)
    assert held in sink.bodies[1]["message"]


async def test_silences_of_other_projects_take_none_out_of_force(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    await silence_project(told, "noisy", hand_clock)
    await keep_silences(told, hand_clock, project="another", num_silences=1200)
    await break_run(told, project="noisy")
    heard = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)

    assert heard in sink.bodies[0]["message"]
    assert ("firing", "waiting") in await states(told)


async def keep_silences(api: Api, clock: HandClock, *, project: str, num_silences: int) -> None:
    """Put them into the database, which may hold more than anybody can make by now."""
    row = {
        "project": project,
        "matchers": "[]",
        "starts_at": clock.now,
        "ends_at": clock.now + 3600,
        "author": "somebody",
        "comment": "of before",
        "created_at": clock.now,
    }
    rows = [row | {"id": new_id()} for _ in range(num_silences)]

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.insert(silences), rows)

    await api.services.database.write(work)


async def silence_project(api: Api, project: str, clock: HandClock) -> Any:
    ends = datetime.fromtimestamp(clock.now + 3600, UTC).isoformat()
    matchers = [{"name": "project", "value": project}]
    body = {"matchers": matchers, "ends_at": ends, "comment": "a known fault"}
    return await api.json("POST", "/silences", json=body)


async def test_the_end_of_an_alert_that_another_explains_by_then_is_told(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    rule = {
        "alert": "LossHigh",
        "scope": "run",
        "when": "loss > 5",
        "keep_firing_for": {"steps": 5},
        "inhibited_by": [{"rules": ["NonFinite"]}],
        "severity": "critical",
    }
    file = {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}
    await told.json("POST", "/rules", json=file)
    run_id = await told.new_run()
    await told.post(run_id, frame(1, [2.0, 9.0]))
    await until_alert(told, run_id, "firing")
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)

    await told.post(run_id, frame(2, [math.nan], first_step=2))
    await told.until_judged(run_id)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 2)
    await told.post(run_id, frame(3, [2.0] * 10, first_step=3))
    await until_alert(told, run_id, "resolved")
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 3)

    fired, _, over = sink.bodies
    assert fired["title"].startswith("[critical] LossHigh")
    assert over["title"].startswith("[resolved] LossHigh")
    assert over["dedup_key"] == fired["dedup_key"]


async def test_a_damaged_alert_keeps_no_other_from_being_told(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    bad = await break_run(told)

    async def damage(connection: AsyncConnection) -> None:
        await connection.execute(alerts.update().values(facts="{"))

    await told.services.database.write(damage, of=bad)
    run_id = await break_run(told)
    hand_clock.now += 3

    await until_so(lambda: len(sink.posts) == 1)
    assert run_id in sink.bodies[0]["message"]


async def test_the_removal_of_a_run_ends_its_incident(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    run_id = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    await told.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    assert (await told.call("DELETE", f"/runs/{run_id}")).status_code == 204

    fired, over = sink.bodies
    assert over["title"].startswith("[closed, not recovered] NonFinite")
    assert over["dedup_key"] == fired["dedup_key"]


async def test_frames_that_came_after_the_fact_wake_nobody(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    late = await told.new_run()
    await told.post(late, frame(1, [2.0, math.nan]), late=True)
    await until_alert(told, late, "firing")
    live = await break_run(told)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)

    assert live in sink.bodies[0]["message"]
    assert len(await states(told)) == 1


async def test_alerts_of_one_moment_make_one_message(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    rule = {"alert": "AlsoBad", "scope": "run", "when": "loss > 100", "severity": "critical"}
    document = {"version": 1, "groups": [{"name": "t", "rules": [rule]}]}
    await told.json("POST", "/rules", json=document)
    run_id = await told.new_run()
    await told.post(run_id, frame(1, [2.0, 1000.0, math.nan]))
    await until_alert(told, run_id, "firing")
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) >= 1)

    assert "AlsoBad" in sink.bodies[0]["title"]
    assert "NonFinite" in sink.bodies[0]["title"]


async def test_an_incident_ends_with_the_last_alert_of_which_anybody_heard(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    """The other of its alerts is explained before its turn comes, and told to nobody."""
    cause = {"alert": "Cause", "scope": "run", "when": "loss > 100"}
    effect = {
        "alert": "Effect",
        "scope": "run",
        "when": "loss > 50",
        "keep_firing_for": {"steps": 2},
        "inhibited_by": [{"rules": ["Cause"]}],
    }
    groups = [{"name": "t", "rules": [cause, effect]}]
    await told.json("POST", "/rules", json={"version": 1, "groups": groups})
    run_id = await told.new_run()
    await told.post(run_id, frame(1, [2.0, 60.0]))
    await told.post(run_id, frame(2, [1000.0], first_step=2))
    await told.until_judged(run_id)
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await told.post(run_id, frame(3, [60.0, 2.0, 2.0, 2.0], first_step=3))
    await told.until_judged(run_id)
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 2)

    assert [body["type"] for body in sink.bodies] == ["failure", "success"]


async def file_ladder(told: Api, *ladder: object) -> None:
    rule = {"alert": "TooHigh", "scope": "run", "when": "loss > 3", "ladder": ladder}
    document = {"version": 1, "groups": [{"name": "t", "rules": [rule]}]}
    await told.json("POST", "/rules", json=document)


async def new_acting_run(told: Api, *allow: str) -> RunId:
    run_id = await told.new_run(allow=allow)
    await told.json("PATCH", f"/runs/{run_id}", json={"policy": "auto"})
    return run_id


async def lower_in_vain(told: Api, run_id: RunId) -> None:
    """The first rung is applied, and does not help."""
    (cut,) = (await told.json("GET", f"/runs/{run_id}/commands"))["commands"]
    receipt = {"command_id": cut["id"], "attempt": 1, "rank": 0, "state": "applied", "step": 2}
    await told.json("POST", f"/commands/{cut['id']}/receipt", json=receipt)
    await told.post(run_id, frame(2, [4.0] * 201, first_step=2))


@pytest.fixture
def only_critical(receivers: dict[str, Any]) -> None:
    receivers["receivers"][0]["min_severity"] = "critical"


async def test_a_page_reaches_those_who_only_want_to_hear_of_what_is_critical(
    only_critical: None, told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    await file_ladder(told, {"lower_lr": {"scale": 0.5}}, {"page": {}})
    run_id = await new_acting_run(told)  # allows nothing: the first rung is passed over
    await told.post(run_id, frame(1, [2.0, 4.0]))
    await until_alert(told, run_id, "firing")
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)

    (told_of,) = sink.bodies
    assert told_of["title"].startswith("[critical] TooHigh")
    assert "lower the learning rate to 0.5 of the schedule's: passed over" in told_of["message"]
    assert "page a person: paged" in told_of["message"]


async def test_a_page_is_told_again_to_those_who_heard_of_the_alert(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    await file_ladder(told, {"lower_lr": {"scale": 0.5}}, {"page": {}})
    run_id = await new_acting_run(told, "lower_lr")
    await told.post(run_id, frame(1, [2.0, 4.0]))
    await until_alert(told, run_id, "firing")
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await until_noted(told, hand_clock)
    await lower_in_vain(told, run_id)
    await until_so(lambda: len(sink.posts) == 2)

    first, again = sink.bodies
    assert first["title"].startswith("[warning] TooHigh")
    assert again["title"].startswith("[critical] TooHigh")
    assert "did not help" in again["message"]


async def test_a_page_while_the_alert_is_being_told_is_told_after_it(
    told: Api, sink: Sink, hand_clock: HandClock
) -> None:
    """It was on its way as a warning, and would have been repeated four hours later."""
    is_paged = threading.Event()
    sink.answer = lambda _: 200 if is_paged.wait(LONGEST_S) else 500
    await file_ladder(told, {"lower_lr": {"scale": 0.5}}, {"page": {}})
    run_id = await new_acting_run(told, "lower_lr")
    await told.post(run_id, frame(1, [2.0, 4.0]))
    await until_alert(told, run_id, "firing")
    hand_clock.now += 3
    await until_so(lambda: len(sink.posts) == 1)
    await lower_in_vain(told, run_id)
    await until_alert(told, run_id, "firing&severity=critical")
    is_paged.set()
    await until_so(lambda: len(sink.posts) == 2)

    first, again = sink.bodies
    assert first["title"].startswith("[warning] TooHigh")
    assert again["title"].startswith("[critical] TooHigh")
