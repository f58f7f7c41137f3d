"""Runs and attempts over the interface."""

import pytest
import sqlalchemy as sa
from tests.server.harness import Api, HandClock, both_engines, frame, new_id

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_server.all_tables import metadata

pytestmark = pytest.mark.anyio


def beat(attempt: int, **facts: object) -> dict[str, object]:
    known = {"rank": 0, "last_step": 1, "step_age_s": 0.1, "phase": "train"}
    return {"attempt": attempt, **known, **facts}


async def test_the_same_id_gives_the_same_run(api: Api) -> None:
    body = {"run_id": new_id(), "name": "a", "config": {"lr": 0.1}}

    first = await api.call("POST", "/runs", json=body)
    second = await api.call("POST", "/runs", json=body)

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json()["config"] == {"lr": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../../etc"},
        {"name": ""},
        {"name": " \t\u200b"},
        {"project": " "},
        {"name": "x" * 257},
        {"colour": "red"},
        {"name": None},
    ],
)
async def test_a_run_that_cannot_be_is_refused(api: Api, change: dict[str, object]) -> None:
    response = await api.call("POST", "/runs", json={"run_id": new_id(), "name": "a"} | change)

    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    assert (await api.json("GET", "/runs"))["runs"] == []


@both_engines
async def test_what_is_newest_goes_by_the_clock_of_the_service(
    api: Api, hand_clock: HandClock
) -> None:
    """A trainer makes its run's id, and its clock may be years off."""
    ahead, behind = ulid(4_000_000_000_000, bytes(10)), ulid(1_000_000_000_000, bytes(10))
    ids = [ahead, behind, new_id()]
    for run_id in ids:
        await api.json("POST", "/runs", json={"run_id": run_id, "name": "a"})
        hand_clock.now += 1.0
    whole = await api.json("GET", "/runs")
    pages = [await api.json("GET", "/runs", params={"limit": 1})]
    while token := pages[-1]["next_token"]:
        pages.append(await api.json("GET", "/runs", params={"limit": 1, "next_token": token}))

    assert [run["id"] for run in whole["runs"]] == ids[::-1]
    assert [run["id"] for page in pages for run in page["runs"]] == ids[::-1]


@both_engines
async def test_a_list_goes_on_behind_a_run_that_was_removed_meanwhile(api: Api) -> None:
    left = await api.new_run()

    after = await api.json("GET", "/runs", params={"next_token": new_id()})
    before = await api.json("GET", "/runs", params={"next_token": ulid(1, bytes(10))})

    assert [run["id"] for run in after["runs"]] == [left]
    assert before["runs"] == []


async def test_runs_come_in_pages_newest_first(api: Api) -> None:
    ids = [await api.new_run() for _ in range(3)]

    first = await api.json("GET", "/runs", params={"limit": 2})
    rest = await api.json("GET", "/runs", params={"limit": 2, "next_token": first["next_token"]})

    found = [run["id"] for run in first["runs"] + rest["runs"]]
    assert found == sorted(ids, reverse=True)
    assert rest["next_token"] is None


async def test_runs_are_found_by_their_exact_name(api: Api) -> None:
    for name in ("gpt", "gpt-2", "gpt"):
        await api.json("POST", "/runs", json={"run_id": new_id(), "name": name})

    found = await api.json("GET", "/runs", params={"name": "gpt"})
    none = await api.json("GET", "/runs", params={"name": "GPT"})

    assert [run["name"] for run in found["runs"]] == ["gpt", "gpt"]
    assert none["runs"] == []


async def test_the_runs_of_a_job_are_found_whatever_ids_they_have(api: Api) -> None:
    job, other = new_id(), new_id()
    await api.json("POST", "/runs", json={"run_id": job, "name": "its first"})
    await api.new_attempt(RunId(job), host={"hostname": "a", "job": job})
    of_own_id = await api.new_run(host={"job": job, "pid": 7})
    await api.new_run(host={"job": other})
    foreign = await api.new_run(project="theirs", host={"job": job})
    reader = await api.new_key("read", project="default")

    found = await api.json("GET", "/runs", params={"job": job})
    ours = await api.json("GET", "/runs", params={"job": job}, key=reader)
    refused = await api.call("GET", "/runs", params={"job": "%"})

    assert {run["id"] for run in found["runs"]} == {job, of_own_id, foreign}
    assert {run["id"] for run in ours["runs"]} == {job, of_own_id}
    assert refused.status_code == 422


async def test_an_empty_project_is_no_run_s(api: Api) -> None:
    await api.new_run(project="ours")

    assert (await api.json("GET", "/runs", params={"project": ""}))["runs"] == []


async def test_a_list_whose_last_part_is_full_has_no_more(api: Api) -> None:
    run_id = await api.new_run()
    for _ in range(2):  # each is a deed, too
        order = {"action": {"kind": "checkpoint"}}
        await api.json("POST", f"/runs/{run_id}/commands", json=order)

    for path, name in ((f"/runs/{run_id}/commands", "commands"), ("/audit", "deeds")):
        whole = await api.json("GET", path)
        num = len(whole[name])
        full = await api.json("GET", path, params={"limit": num})
        part = await api.json("GET", path, params={"limit": num - 1})
        assert (full["next_token"], len(full[name])) == (None, num)
        assert (part["next_token"] is not None, len(part[name])) == (True, num - 1)


async def test_a_token_gives_the_same_attempt_however_often_it_is_asked(api: Api) -> None:
    run_id = await api.new_run()
    token = new_id()

    numbers = [await api.new_attempt(run_id, token=token) for _ in range(3)]

    assert numbers == [2, 2, 2]


async def test_an_attempt_sent_afterwards_fences_no_other(api: Api) -> None:
    run_id = await api.new_run()

    late = await api.new_attempt(run_id, live=False)

    assert late == 2
    assert (await api.json("GET", f"/runs/{run_id}"))["current_attempt"] == 1
    await api.json("POST", f"/runs/{run_id}/heartbeat", json=beat(1))


async def test_a_fenced_attempt_is_not_heard(api: Api) -> None:
    run_id = await api.new_run()
    await api.new_attempt(run_id)

    response = await api.call("POST", f"/runs/{run_id}/heartbeat", json=beat(1))

    assert (response.status_code, response.json()["code"]) == (409, "stale_attempt")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"dropped_rows": -5}, "`int` >= 0 - at `$.dropped_rows`, found -5"),
        ({"spooled_frames": -1}, "`int` >= 0 - at `$.spooled_frames`, found -1"),
        ({"lr_scale": 1e308}, "`float` <= 1.0 - at `$.lr_scale`, found 1e+308"),
        ({"lr_scale": 0}, "`float` > 0.0 - at `$.lr_scale`, found 0"),
        ({"step_age_s": -3.5}, "`float` >= 0.0 - at `$.step_age_s`, found -3.5"),
        ({"last_step": -2}, "`int` >= -1 - at `$.last_step`, found -2"),
        ({"rank": -1}, "`int` >= 0 - at `$.rank`, found -1"),
    ],
)
async def test_a_heartbeat_out_of_bounds_is_refused(
    api: Api, facts: dict[str, object], told: str
) -> None:
    run_id = await api.new_run()

    refused = await api.call("POST", f"/runs/{run_id}/heartbeat", json=beat(1, **facts))

    assert (refused.status_code, refused.json()["detail"]) == (422, f"body: Expected {told}")
    (known,) = api.services.liveness.facts(run_id, now=api.services.clock.monotonic())
    assert (known.dropped_rows, known.spooled_frames, known.lr_scale) == (0, 0, 1.0)


@pytest.mark.parametrize(
    "facts",
    [{"world_size": 0}, {"world_size": -1}, {"resume_step": -1}, {"allow": ["checkpoint stop"]}],
)
async def test_an_attempt_that_cannot_be_is_refused(api: Api, facts: dict[str, object]) -> None:
    run_id = await api.new_run()
    body = {"token": new_id(), "started_at": 1.8e9} | facts

    refused = await api.call("POST", f"/runs/{run_id}/attempts", json=body)

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_body")
    attempts = (await api.json("GET", f"/runs/{run_id}/attempts"))["attempts"]
    assert [attempt["attempt"] for attempt in attempts] == [1]


async def test_closing_the_attempt_ends_the_run_once(api: Api, hand_clock: HandClock) -> None:
    run_id = await api.new_run()
    path = f"/runs/{run_id}/attempts/1/close"

    first = await api.json("POST", path, json={"status": "finished", "last_step": 9})
    hand_clock.now += 60
    second = await api.json("POST", path, json={"status": "failed"})

    assert first["state"] == second["state"] == "finished"
    assert first["ended_at"] == second["ended_at"]
    refused = await api.call("POST", f"/runs/{run_id}/heartbeat", json=beat(1))
    assert (refused.status_code, refused.json()["code"]) == (409, "run_ended")


async def test_a_new_attempt_opens_an_ended_run_again(api: Api) -> None:
    run_id = await api.new_run()
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "failed"})

    await api.new_attempt(run_id)

    run = await api.json("GET", f"/runs/{run_id}")
    assert run["state"] in ("starting", "training")  # by whether the service has looked at it yet
    assert (run["ended_at"], run["current_attempt"]) == (None, 2)


async def test_a_run_s_policy_goes_before_the_service_s(api: Api) -> None:
    run_id = await api.new_run()
    assert (await api.json("GET", f"/runs/{run_id}"))["policy"] == "observe"

    changed = await api.json("PATCH", f"/runs/{run_id}", json={"policy": "auto"})

    assert changed["policy"] == "auto"


async def test_a_live_run_is_not_removed(api: Api) -> None:
    run_id = await api.new_run()

    response = await api.call("DELETE", f"/runs/{run_id}")

    assert (response.status_code, response.json()["code"]) == (409, "run_is_live")


async def test_a_removed_run_leaves_nothing(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0, 2.0]))
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    assert (await api.call("DELETE", f"/runs/{run_id}")).status_code == 204

    assert (await api.call("GET", f"/runs/{run_id}")).status_code == 404
    assert await rows_of(api, run_id) == {}


async def test_a_run_that_is_not_there_is_named(api: Api) -> None:
    response = await api.call("GET", f"/runs/{new_id()}/series", params={"metric": "loss"})

    assert (response.status_code, response.json()["code"]) == (404, "run_not_found")


async def rows_of(api: Api, run_id: RunId) -> dict[str, int]:
    counts: dict[str, int] = {}
    async with api.services.database.read() as connection:
        for table in metadata.sorted_tables:
            if "run_id" in table.c:
                query = sa.select(sa.func.count()).where(table.c.run_id == run_id)
                counts[table.name] = await connection.scalar(query) or 0
    return {name: count for name, count in counts.items() if count}
