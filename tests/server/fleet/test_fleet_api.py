"""All runs at a glance: whose are seen, which stand first, and what each tells of itself."""

import asyncio
import json
import math
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.types import Message
from tests.server.harness import Api, HandClock, both_engines, frame, new_id
from tests.waiting import LONGEST_S

from runwatch.vocabulary import RunId
from runwatch_server.fleet.api import changes as changes_of_fleet
from runwatch_server.fleet.pulse import main_metric

pytestmark = pytest.mark.anyio


async def new_run(api: Api, name: str, *, project: str = "default", **config: object) -> RunId:
    run_id = new_id()
    body = {"run_id": run_id, "name": name, "project": project, "config": config}
    await api.json("POST", "/runs", json=body)
    await api.new_attempt(run_id, host={"hostname": "node-7", "user": "kim"})
    return run_id


async def names(api: Api, **params: object) -> list[str]:
    found = await api.json("GET", "/fleet", params=params)
    return [run["name"] for run in found["runs"]]


async def test_a_run_with_a_firing_critical_alert_stands_first(api: Api) -> None:
    broken = await new_run(api, "broken")
    await new_run(api, "newer and healthy")
    await api.post(broken, frame(1, [2.0, math.nan, math.nan]))
    await api.until_judged(broken)

    fleet = await api.json("GET", "/fleet")
    assert [run["name"] for run in fleet["runs"]] == ["broken", "newer and healthy"]
    assert fleet["runs"][0]["num_critical"] == 1
    assert fleet["counts"]["trouble"] == 1


async def test_a_run_that_ended_broken_stays_in_trouble_until_somebody_has_seen_it(
    api: Api,
) -> None:
    broken = await new_run(api, "broken")
    await api.post(broken, frame(1, [2.0, math.nan, math.nan]))
    well = await new_run(api, "newer and well")
    await api.until_judged(broken)
    for run_id in (broken, well):
        await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.services.ticker.tick_slowly()

    fleet = await api.json("GET", "/fleet")
    assert [run["name"] for run in fleet["runs"]] == ["broken", "newer and well"]
    assert [run["num_critical_left"] for run in fleet["runs"]] == [1, 0]
    assert fleet["counts"]["trouble"] == 1
    (alert,) = (await api.json("GET", "/alerts", params={"run_id": broken}))["alerts"]
    await api.json("POST", f"/alerts/{alert['id']}/ack", json={"note": "known"})
    assert (await api.json("GET", "/fleet"))["counts"]["trouble"] == 0


async def test_a_run_that_settled_worse_stays_in_trouble_though_no_alert_fires(api: Api) -> None:
    rule = {"alert": "Rose", "when": "loss > 3 * max(loss, 16)", "severity": "critical"}
    document = {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}
    await api.json("POST", "/rules", json=document)
    run_id = await new_run(api, "settled")
    await new_run(api, "newer and well")
    await api.post(run_id, frame(1, [0.5] * 20 + [2.6] * 2))
    await api.until_judged(run_id)

    (alert,) = (await api.json("GET", "/alerts", params={"run_id": run_id, "rule": "Rose"}))[
        "alerts"
    ]
    assert (alert["state"], alert["resolution"]) == ("resolved", "settled_worse")
    assert alert["outcome"] == "loss settled at 2.6, five times its level before"
    fleet = await api.json("GET", "/fleet")
    assert fleet["runs"][0]["name"] == "settled"
    assert fleet["runs"][0]["num_critical_left"] == 1
    as_admin = {"Authorization": f"Bearer {api.admin_key}"}
    banner = (await api.http.get(f"/runs/{run_id}/fresh", headers=as_admin)).text
    assert "not recovered: loss settled at 2.6, five times its level before" in banner
    assert "Rose" in banner

    await api.json("POST", f"/alerts/{alert['id']}/ack", json={"note": "known"})
    assert (await api.json("GET", "/fleet"))["runs"][0]["num_critical_left"] == 0


async def test_a_log_that_was_brought_in_tells_how_it_ended_as_any_run_does(api: Api) -> None:
    run_id = new_id()
    body = {"run_id": run_id, "name": "brought in", "project": "default"}
    await api.json("POST", "/runs", json=body)
    await api.new_attempt(run_id, live=False)
    await api.post(run_id, frame(1, [3.0, 2.0, math.nan, math.nan]), late=True)
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.until_judged(run_id)
    await api.services.ticker.tick_slowly()

    (run,) = (await api.json("GET", "/fleet", params={"group": "trouble"}))["runs"]
    (pulse,) = (await api.json("GET", "/fleet/pulse", params={"run_id": run_id}))["pulses"]
    as_admin = {"Authorization": f"Bearer {api.admin_key}"}
    banner = (await api.http.get(f"/runs/{run_id}/fresh", headers=as_admin)).text
    assert run["num_critical_left"] == 1
    assert run["last_step_at"] is not None
    assert pulse["latest"] == {"loss": "NaN"}
    assert "Open when it ended" in banner


async def test_the_runs_of_a_group_are_found_by_its_name(api: Api) -> None:
    for name, group in (("seed 1", "seeds"), ("seed 2", "seeds"), ("other", "lr"), ("alone", "")):
        body = {"run_id": new_id(), "name": name, "project": "default", "group": group}
        await api.json("POST", "/runs", json=body)

    assert await names(api, run_group="seeds", order="name") == ["seed 1", "seed 2"]
    assert await names(api, search="lr") == ["other"]
    fleet = await api.json("GET", "/fleet", params={"run_group": "seeds"})
    assert [run["run_group"] for run in fleet["runs"]] == ["seeds", "seeds"]
    assert fleet["counts"]["all"] == 2


async def test_a_run_says_whose_it_is_where_it_is_and_how_far_it_has_come(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await new_run(api, "gpt")
    await api.post(run_id, frame(1, [2.0, 1.5]))

    (run,) = (await api.json("GET", "/fleet"))["runs"]
    assert (run["owner"], run["host"], run["last_step"]) == ("kim", "node-7", 1)
    assert run["last_step_at"] is not None


async def test_the_owner_in_the_configuration_goes_before_the_user_of_the_process(
    api: Api,
) -> None:
    await new_run(api, "gpt", owner="ada")

    (run,) = (await api.json("GET", "/fleet"))["runs"]
    assert run["owner"] == "ada"


async def test_search_finds_all_words_in_name_project_or_configuration(api: Api) -> None:
    await new_run(api, "llama-8b", project="speech", dtype="bf16")
    await new_run(api, "llama-70b")
    await new_run(api, "100%_sure")

    assert await names(api, search="LLAMA bf16") == ["llama-8b"]
    assert await names(api, search="speech") == ["llama-8b"]
    assert await names(api, search="0%_s") == ["100%_sure"]


async def test_search_knows_the_capitals_of_every_language(api: Api) -> None:
    await new_run(api, "Ürün-Ω", project="ФИЗИКА")
    await new_run(api, "other")

    for search in ("Ürün", "ürün", "ÜRÜN", "физика", "ω", "Ürün ФИЗ"):
        assert await names(api, search=search) == ["Ürün-Ω"]


@both_engines
async def test_search_finds_a_name_as_it_is_written(api: Api) -> None:
    await new_run(api, "Ürün")

    assert await names(api, search="Ürün") == ["Ürün"]


async def test_a_key_of_one_project_sees_the_runs_of_no_other(api: Api) -> None:
    await new_run(api, "mine", project="mine")
    await new_run(api, "theirs", project="theirs")
    key = await api.new_key("read", project="mine")

    fleet = await api.json("GET", "/fleet", key=key)
    assert [run["name"] for run in fleet["runs"]] == ["mine"]
    assert fleet["counts"]["all"] == 1
    refused = await api.call("GET", "/fleet", key=key, params={"project": "theirs"})
    assert refused.status_code == 403


async def test_groups_and_pages_narrow_what_is_listed_and_leave_the_counts(api: Api) -> None:
    done = await new_run(api, "done")
    await api.json("POST", f"/runs/{done}/attempts/1/close", json={"status": "finished"})
    await new_run(api, "a")
    await new_run(api, "b")

    assert await names(api, group="ended") == ["done"]
    assert await names(api, group="live", order="name") == ["a", "b"]
    assert await names(api, order="name", limit=1, offset=1) == ["b"]
    counts = (await api.json("GET", "/fleet", params={"group": "ended"}))["counts"]
    assert (counts["all"], counts["live"], counts["ended"]) == (3, 2, 1)


async def test_a_pulse_shows_the_loss_and_where_it_was_no_number(api: Api) -> None:
    run_id = await new_run(api, "gpt")
    await api.post(run_id, frame(1, [2.0, math.nan, 1.0]))

    (pulse,) = (await api.json("GET", "/fleet/pulse", params={"run_id": run_id}))["pulses"]
    assert pulse["curve"]["values"] == [2.0, None, 1.0]
    assert pulse["curve"]["nonfinite"] == [1]
    assert pulse["latest"] == {"loss": 1.0}
    assert pulse["steps_per_s"] == 1.0


async def test_a_pulse_tells_the_last_loss_though_the_newest_steps_have_none(api: Api) -> None:
    run_id = await new_run(api, "evaluates")
    await api.post(run_id, frame(1, [2.0, math.nan]))
    await api.post(run_id, frame(2, [0.5], first_step=2, metric="val_loss"))

    (pulse,) = (await api.json("GET", "/fleet/pulse", params={"run_id": run_id}))["pulses"]
    assert pulse["latest"] == {"loss": "NaN"}


async def test_a_pulse_of_another_project_is_left_out(api: Api) -> None:
    run_id = await new_run(api, "theirs", project="theirs")
    key = await api.new_key("read", project="mine")

    found = await api.json("GET", "/fleet/pulse", key=key, params={"run_id": run_id})
    assert found == {"pulses": []}


async def test_a_curve_is_read_again_once_it_is_old(api: Api, hand_clock: HandClock) -> None:
    run_id = await new_run(api, "gpt")
    await api.post(run_id, frame(1, [2.0]))
    await api.json("GET", "/fleet/pulse", params={"run_id": run_id})
    await api.post(run_id, frame(2, [1.0], first_step=1))
    hand_clock.now += 16

    (pulse,) = (await api.json("GET", "/fleet/pulse", params={"run_id": run_id}))["pulses"]
    assert pulse["curve"]["values"] == [2.0, 1.0]


async def test_a_run_without_steps_has_no_pulse_and_says_so(api: Api) -> None:
    run_id = await new_run(api, "gpt")

    (pulse,) = (await api.json("GET", "/fleet/pulse", params={"run_id": run_id}))["pulses"]
    assert pulse == {"run_id": run_id, "curve": None, "latest": {}, "steps_per_s": None}


async def test_the_stream_names_the_runs_that_have_changed(api: Api) -> None:
    run_id = await new_run(api, "gpt")
    asker = await api.services.keys.authenticate(api.admin_key)
    changes = changes_of_fleet(Request({"type": "http"}, receive=_never), api.services, asker)
    assert b"here begins" in await anext(changes)
    first = asyncio.create_task(_told(changes))
    await asyncio.sleep(0)
    await api.post(run_id, frame(1, [2.0]))

    async with asyncio.timeout(LONGEST_S):
        assert await first == [run_id]


async def _never() -> Message:
    await asyncio.Event().wait()
    return {}


async def _told(changes: AsyncIterator[bytes]) -> list[str]:
    async for text in changes:
        if text.startswith(b"event: fleet"):
            told: dict[str, list[str]] = json.loads(text.split(b"data: ")[1])
            return told["changed"]
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("sent", "chosen"),
    [
        (["grad_norm", "loss"], "loss"),
        (["loss_scale", "train/loss"], "train/loss"),
        (["loss_scale", "my_loss"], "my_loss"),
        (["Loss", "box_loss"], "Loss"),
        (["best_loss", "lm_loss"], "lm_loss"),
        (["best_loss"], None),
        (["grad_norm", "loss_scale"], None),
    ],
)
def test_the_metric_that_says_how_a_run_goes_is_its_loss(
    sent: list[str], chosen: str | None
) -> None:
    assert main_metric(sent) == chosen
