"""How long what is kept, over the real interface: said of a project and of a run, told before it is
done, done in chunks, and never a door for duplicates."""

import math
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve
from tests.server.runs.test_lost_runs import lose
from tests.server.telemetry.test_histograms_api import with_histograms

from runwatch.frames import Event
from runwatch.vocabulary import RunId
from runwatch_server.alerts.tables import alerts
from runwatch_server.retention import queries
from runwatch_server.retention.ages import Ages
from runwatch_server.telemetry import retention as telemetry
from runwatch_server.telemetry.tables import frames, rollups

pytestmark = [pytest.mark.anyio, both_engines]

DAY_S = 86_400.0
STEPS = 500
"""Of a frame."""
NUM_FRAMES = 14
INHERITED = {"raw_days": None, "evidence_days": None, "rollup_days": None}


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock) as api:
        yield api


async def ended_run(api: Api, *, project: str = "default", bad_step: int | None = None) -> RunId:
    """7000 steps, all of them summed up; where there is a bad one, with an alert."""
    run_id = await api.new_run(project=project)
    for seq in range(1, NUM_FRAMES + 1):
        first_step = STEPS * (seq - 1)
        losses = np.linspace(3.0 - first_step / 7e3, 3.0 - (first_step + STEPS) / 7e3, STEPS)
        if bad_step is not None and first_step <= bad_step < first_step + STEPS:
            losses[bad_step - first_step] = math.nan
        stats = np.ones((STEPS, 2), np.float32)
        sent = frame(seq, losses, first_step=first_step, stats=stats)
        assert (await api.post(run_id, sent)).status_code == 200
    if bad_step is not None:
        await api.until_judged(run_id)
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.services.roller.roll()
    return run_id


async def count(api: Api, table: sa.Table, run_id: RunId) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(table.c.run_id == run_id)
    async with api.services.database.read() as connection:
        return await connection.scalar(query) or 0


async def say(api: Api, project: str, **ages: float) -> None:
    body = {"project": project, "ages": {**INHERITED, **ages}}
    await api.json("PATCH", "/retention", json=body)


async def due(api: Api) -> dict[str, Any]:
    found = await api.json("GET", "/retention/due")
    return {run["run_id"]: run for run in found["runs"]}


async def test_a_project_keeps_its_frames_for_as_long_as_it_says(
    api: Api, hand_clock: HandClock
) -> None:
    short, usual = await ended_run(api, project="short"), await ended_run(api)
    await say(api, "short", raw_days=2)

    hand_clock.now += 3 * DAY_S
    told = await due(api)
    removed = await api.services.retention.remove_due()

    assert set(told) == {short}
    assert told[short]["frames"]["number"] == removed.num_frames == NUM_FRAMES
    assert told[short]["frames"]["num_bytes"] > 0
    assert await count(api, frames, short) == 0
    assert await count(api, frames, usual) == NUM_FRAMES
    assert await due(api) == {}


async def test_a_frame_that_was_removed_and_is_sent_again_is_a_duplicate(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await ended_run(api)
    hand_clock.now += 31 * DAY_S
    await api.services.retention.remove_due()
    left = await count(api, frames, run_id)

    again = frame(1, [1.0] * STEPS, stats=np.ones((STEPS, 2), np.float32))
    response = await api.post(run_id, again, late=True)

    assert response.json()["duplicate"] is True
    assert await count(api, frames, run_id) == left


async def test_evidence_outlives_the_other_frames_and_goes_with_its_own_time(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await ended_run(api, bad_step=5000)
    await say(api, "default", raw_days=2, evidence_days=10)

    hand_clock.now += 3 * DAY_S
    await api.services.retention.remove_due()
    with_evidence = await count(api, frames, run_id)
    hand_clock.now += 8 * DAY_S
    await api.services.retention.remove_due()

    assert with_evidence > 0
    assert await count(api, frames, run_id) == 0
    loss = await api.series(run_id, metric="loss", points=10_000)
    assert len(loss["steps"]) == STEPS * NUM_FRAMES


async def test_what_led_to_an_alert_stays_though_an_earlier_attempt_trained_it(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await ended_run(api)
    await api.new_attempt(run_id, resume_step=STEPS * NUM_FRAMES)
    sent = frame(1, [3.0, math.nan], first_step=STEPS * NUM_FRAMES, attempt=2)
    assert (await api.post(run_id, sent)).status_code == 200
    await api.until_judged(run_id)
    await api.json("POST", f"/runs/{run_id}/attempts/2/close", json={"status": "finished"})

    hand_clock.now += 31 * DAY_S
    removed = await api.services.retention.remove_due()

    assert removed.num_frames == 9  # of 15: those before step 7001 - 2048


@pytest.mark.parametrize("num_steps", [1, 40, 900, 1024, 1100])
async def test_a_run_of_few_steps_goes_too_and_its_sums_stay(
    api: Api, hand_clock: HandClock, num_steps: int
) -> None:
    run_id = await api.new_run()
    losses, stats = np.linspace(3.0, 2.0, num_steps), np.ones((num_steps, 2), np.float32)
    news = Event(step=num_steps - 1, kind="note", at=1.7e9)
    for sent in (frame(1, losses, stats=stats), frame(2, [], events=(news,))):
        assert (await api.post(run_id, sent)).status_code == 200
    await api.services.roller.roll()
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.services.roller.roll()
    loss = await api.series(run_id, metric="loss")

    hand_clock.now += 31 * DAY_S
    removed = await api.services.retention.remove_due()

    assert (removed.num_frames, await count(api, frames, run_id)) == (2, 0)
    assert await api.series(run_id, metric="loss") == loss
    layer = await api.series(run_id, layer="last.weight", stat="grad_norm")
    assert sum(layer["count"]) == num_steps
    part = await api.series(run_id, layer="last.weight", stat="grad_norm", to=0)
    assert sum(part["count"]) == min(num_steps, 64)  # nothing finer is left


async def test_what_only_informs_keeps_no_frames(api: Api, hand_clock: HandClock) -> None:
    run_id = await ended_run(api, bad_step=5000)
    async with api.services.database.read() as connection:
        pinning = await telemetry.removable_frames(connection, run_id, with_evidence=False)
    inform = alerts.update().where(alerts.c.run_id == run_id).values(severity="info")
    await api.services.database.write(lambda connection: connection.execute(inform))

    hand_clock.now += 31 * DAY_S
    removed = await api.services.retention.remove_due()

    assert pinning.number < NUM_FRAMES
    assert removed.num_frames == NUM_FRAMES


async def held(api: Api) -> dict[RunId, tuple[str, int, str | None]]:
    found = await api.json("GET", "/retention/due")
    return {
        one["run_id"]: (one["why"], one["frames"]["number"], one["until"]) for one in found["held"]
    }


async def test_what_stays_though_it_is_old_enough_is_told_with_the_reason(
    api: Api, hand_clock: HandClock
) -> None:
    young = await ended_run(api)
    alerting, pinned = await ended_run(api, bad_step=5000), await ended_run(api)
    lost, unsummed = await api.new_run(), await api.new_run()
    for run_id in (lost, unsummed):
        assert (await api.post(run_id, frame(1, [1.0]))).status_code == 200
    await api.json("POST", f"/runs/{unsummed}/attempts/1/close", json={"status": "finished"})
    await lose(api, lost, at=hand_clock.now)
    for_long = {**INHERITED, "raw_days": 900}
    await api.json("PATCH", f"/runs/{young}/retention", json={"ages": for_long})
    await api.json("PATCH", f"/runs/{pinned}/retention", json={"pinned": True})
    hand_clock.now += 31 * DAY_S
    removed = await api.services.retention.remove_due()
    for_ever = await held(api)
    await say(api, "default", evidence_days=40)

    num_evidence = NUM_FRAMES - removed.num_frames
    assert 0 < num_evidence < NUM_FRAMES
    assert for_ever == {
        lost: ("lost", 1, None),
        alerting: ("evidence", num_evidence, None),
        pinned: ("pinned", NUM_FRAMES, None),
        unsummed: ("not_summed_up", 1, None),
    }
    why, number, until = (await held(api))[alerting]
    assert (why, number) == ("evidence", num_evidence)
    assert until is not None
    left_s = datetime.fromisoformat(until).timestamp() - hand_clock.now
    assert left_s == pytest.approx(9 * DAY_S, abs=60)


async def test_histograms_are_told_before_they_go(api: Api, hand_clock: HandClock) -> None:
    run_id = await api.new_run()
    for seq, step in enumerate((10, 20, 30), 1):
        assert (await api.post(run_id, with_histograms(seq, step, 1))).status_code == 200
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    hand_clock.now += 31 * DAY_S
    told = await due(api)
    removed = await api.services.retention.remove_due()

    assert told[run_id]["histograms"]["number"] == removed.num_histograms == 3
    assert told[run_id]["histograms"]["num_bytes"] > 0
    assert await due(api) == {}


async def test_rollups_of_layers_go_and_metrics_stay(api: Api, hand_clock: HandClock) -> None:
    run_id = await ended_run(api)
    loss = await api.series(run_id, metric="loss", points=10_000)
    await say(api, "default", raw_days=2, rollup_days=10)

    hand_clock.now += 11 * DAY_S
    told = await due(api)
    removed = await api.services.retention.remove_due()

    assert told[run_id]["rollups"]["number"] == removed.num_rollups > 0
    assert await count(api, rollups, run_id) > 0
    assert await api.series(run_id, metric="loss", points=10_000) == loss
    layer = {"layer": "last.weight", "stat": "grad_norm", "points": 100}
    assert sum((await api.series(run_id, **layer))["count"]) < STEPS * NUM_FRAMES


async def test_nothing_of_a_pinned_run_goes_until_it_is_let_go(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await ended_run(api)
    path = f"/runs/{run_id}/retention"
    pinned = await api.json("PATCH", path, json={"pinned": True, "ages": INHERITED})
    hand_clock.now += 400 * DAY_S

    kept = await api.services.retention.remove_due()
    await api.json("PATCH", path, json={"pinned": False, "ages": {**INHERITED, "raw_days": 500}})
    still_kept = await api.services.retention.remove_due()
    await api.json("PATCH", path, json={"pinned": False, "ages": INHERITED})
    gone = await api.services.retention.remove_due()

    assert (pinned["pinned"], pinned["in_force"]["raw_days"]) == (True, 30)
    assert (kept.num_frames, still_kept.num_frames, gone.num_frames) == (0, 0, NUM_FRAMES)


async def test_a_pin_that_is_set_in_the_middle_of_a_round_keeps_the_rest(
    api: Api, hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_CHUNK_FRAMES", 4)
    run_id = await ended_run(api)
    hand_clock.now += 31 * DAY_S
    remove = telemetry.remove_frames

    async def remove_and_pin(connection: AsyncConnection, run_id: RunId, **options: Any) -> int:
        removed = await remove(connection, run_id, **options)
        await queries.put_run(connection, run_id, Ages(), pinned=True)
        return removed

    monkeypatch.setattr(telemetry, "remove_frames", remove_and_pin)
    removed = await api.services.retention.remove_due()

    assert removed.num_frames == 4
    assert await count(api, frames, run_id) == NUM_FRAMES - 4


async def test_a_run_that_has_nothing_left_holds_up_no_write(
    api: Api, hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended_run(api)
    hand_clock.now += 31 * DAY_S
    first = await api.services.retention.remove_due()
    asked: list[RunId] = []

    async def ask(connection: AsyncConnection, run_id: RunId, **options: Any) -> int:
        asked.append(run_id)
        return 0

    monkeypatch.setattr(telemetry, "remove_packs", ask)
    again = await api.services.retention.remove_due()

    assert (first.num_frames, again.num_frames, asked) == (NUM_FRAMES, 0, [])


async def test_what_is_not_said_of_a_run_stays_as_it_was(api: Api) -> None:
    path = f"/runs/{await api.new_run()}/retention"

    await api.json("PATCH", path, json={"pinned": True})
    aged = await api.json("PATCH", path, json={"ages": {"raw_days": 90}})
    let_go = await api.json("PATCH", path, json={"pinned": False})

    assert (aged["pinned"], aged["own"]["raw_days"]) == (True, 90)
    assert (let_go["pinned"], let_go["own"]["raw_days"]) == (False, 90)
    assert let_go == await api.json("GET", path)


async def test_who_may_not_remove_a_run_may_pin_it_but_give_it_no_ages(api: Api) -> None:
    path = f"/runs/{await api.new_run()}/retention"
    key = await api.new_key("read", "control")

    pinned = await api.call("PATCH", path, json={"pinned": True}, key=key)
    aged = await api.call("PATCH", path, json={"ages": {"raw_days": 1e-9}}, key=key)

    assert (pinned.status_code, aged.status_code) == (200, 403)


async def test_what_was_said_is_shown_audited_and_taken_back(api: Api) -> None:
    await say(api, "short", raw_days=2)
    said = await api.json("GET", "/retention")
    await say(api, "short")
    taken_back = await api.json("GET", "/retention")

    assert said["service"] == {"raw_days": 30.0, "evidence_days": 0.0, "rollup_days": 0.0}
    assert said["projects"] == [{"project": "short", "ages": {**INHERITED, "raw_days": 2.0}}]
    assert taken_back["projects"] == []
    deeds = [deed["deed"] for deed in (await api.json("GET", "/audit"))["deeds"]]
    assert deeds.count("retention_set") == 2


async def test_an_age_that_is_none_is_refused(api: Api) -> None:
    body = {"project": "short", "ages": {**INHERITED, "raw_days": -1}}

    refused = await api.call("PATCH", "/retention", json=body)

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
