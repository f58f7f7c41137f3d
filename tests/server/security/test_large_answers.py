"""What somebody with an `ingest` key stores costs those who read it no more than a bound."""

from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from tests.server.harness import Api, both_engines, frame, new_id

from runwatch.frames import Event
from runwatch.layouts import Layer, Layout
from runwatch.messages import MAX_CONFIG_BYTES, MAX_HOST_BYTES
from runwatch.vocabulary import RunId
from runwatch_server.web.pagination import MOST_BYTES, answer_of

pytestmark = pytest.mark.anyio

LARGE = ["y" * 1000] * 950
"""Nearly as much as an event may hold."""


def config_of(num_bytes: int) -> dict[str, str]:
    """A configuration of so many bytes as JSON."""
    return {"text": "x" * (num_bytes - len('{"text":""}'))}


async def open_run(api: Api, config: dict[str, Any]) -> RunId:
    run_id = new_id()
    body = {"run_id": run_id, "name": "large", "config": config}
    await api.json("POST", "/runs", json=body)
    return run_id


async def run_with_events(api: Api, *events: Event) -> RunId:
    run_id = await api.new_run()
    for seq, event in enumerate(events, 1):
        sent = frame(seq, [1.0], first_step=seq - 1, events=(event,))
        assert (await api.post(run_id, sent)).status_code == 200
    return run_id


async def pages_of(api: Api, path: str, name: str) -> list[list[Any]]:
    """All that a list holds, as it comes."""
    pages: list[list[Any]] = []
    params: dict[str, str] = {"limit": "1000"}
    while True:
        answer = await api.call("GET", path, params=params)
        assert len(answer.content) < 2 * MOST_BYTES
        pages.append(answer.json()[name])
        token = answer.json()["next_token"]
        if token is None or not pages[-1]:
            return pages
        params["next_token"] = token


async def test_a_configuration_beyond_what_the_hook_sends_is_refused(api: Api) -> None:
    body = {"run_id": new_id(), "name": "a", "config": config_of(MAX_CONFIG_BYTES + 1)}
    refused = await api.call("POST", "/runs", json=body)

    assert refused.status_code == 422
    assert refused.json()["detail"] == ("config: found 262145 bytes of JSON, wanted at most 262144")


async def test_a_configuration_that_just_fits_is_that_of_its_run_and_in_no_list(api: Api) -> None:
    run_id = await open_run(api, config_of(MAX_CONFIG_BYTES))

    whole = await api.json("GET", f"/runs/{run_id}")
    listed = await api.call("GET", "/runs")
    fleet = await api.call("GET", "/fleet")

    assert len(whole["config"]["text"]) > 262_000
    assert "config" not in listed.json()["runs"][0]
    assert len(listed.content) < 1000
    assert len(fleet.content) < 1000


async def test_an_owner_in_a_list_is_short(api: Api) -> None:
    await open_run(api, {"owner": "o" * 10_000})

    (row,) = (await api.json("GET", "/fleet"))["runs"]

    assert row["owner"] == "o" * 256


async def test_the_facts_of_an_attempt_s_host_are_limited(api: Api) -> None:
    run_id = await api.new_run()
    body = {"token": new_id(), "started_at": 1.7e9, "host": {"job": "j" * MAX_HOST_BYTES}}
    refused = await api.call("POST", f"/runs/{run_id}/attempts", json=body)

    assert refused.status_code == 422
    assert "host: found 16394 bytes of JSON, wanted at most 16384" in refused.json()["detail"]


async def test_attempts_come_in_pages(api: Api) -> None:
    run_id = await api.new_run()
    for _ in range(2):
        await api.new_attempt(run_id)
    path = f"/runs/{run_id}/attempts"

    first = await api.json("GET", path, params={"limit": 2})
    rest = await api.json("GET", path, params={"limit": 2, "next_token": first["next_token"]})

    assert [[one["attempt"] for one in page["attempts"]] for page in (first, rest)] == [[1, 2], [3]]
    assert rest["next_token"] is None


@both_engines
async def test_a_timeline_of_large_events_comes_in_parts_and_whole(api: Api) -> None:
    events = [Event(step, "note", 1.7e9, {"text": LARGE}) for step in range(7)]
    run_id = await run_with_events(api, *events)

    pages = await pages_of(api, f"/runs/{run_id}/timeline", "events")

    assert [len(page) for page in pages] == [5, 2, 0]
    assert [one["step"] for page in pages for one in page] == list(range(7))


@both_engines
async def test_large_checkpoints_come_in_parts_and_are_good_by_what_came_later(api: Api) -> None:
    saved = [Event(step, "checkpoint", 1.7e9, {"path": [*LARGE, str(step)]}) for step in range(6)]
    good = [replace_kind(event) for event in saved[4:]]
    run_id = await run_with_events(api, *saved, *good)

    pages = await pages_of(api, f"/runs/{run_id}/checkpoints", "checkpoints")

    assert [len(page) for page in pages] == [5, 1]
    found = [(one["step"], one["good"]) for page in pages for one in page]
    assert found == [(step, step >= 4) for step in range(6)]


def replace_kind(event: Event) -> Event:
    return msgspec.structs.replace(event, kind="checkpoint_good")


@pytest.mark.slow
async def test_a_heat_map_of_many_layers_has_fewer_steps(api: Api) -> None:
    run_id = await api.new_run()
    layout = Layout(tuple(Layer(f"l{number}") for number in range(20_000)), ("grad_absmax",))
    await api.put_layout(run_id, layout)
    sent = frame(1, [1.0] * 150, stats=np.ones((150, 20_000), np.float32))
    await api.post(run_id, replace(sent, layout_hash=layout.hash))

    params = {"stat": "grad_absmax", "points": 10_000}
    found = await api.json("GET", f"/runs/{run_id}/heatmap", params=params)

    assert len(found["layers"]) == 20_000
    assert 0 < len(found["steps"]) <= 100


@pytest.mark.slow
async def test_the_layouts_of_a_run_are_limited_together(api: Api) -> None:
    """One answer, `GET /runs/{run_id}/metrics`, holds them all."""
    run_id = await api.new_run()
    answers: list[httpx.Response] = []
    for number in range(8):
        names = (f"{number}-{place}-{'z' * 240}" for place in range(20_000))
        layout = Layout(tuple(Layer(name) for name in names), ("grad_norm",))
        body = msgspec.json.encode(layout.to_document())
        path = f"/runs/{run_id}/layouts/{layout.hash}"
        answers.append(await api.call("PUT", path, content=body))

    assert [answer.status_code for answer in answers] == [201] * 5 + [422] * 3
    assert answers[-1].json()["code"] == "too_many_layouts"
    assert "of 32 MiB together" in answers[-1].json()["detail"]


def test_an_answer_holds_at_least_one_item_and_ends_behind_its_bound() -> None:
    def view(item: int) -> str:
        return "x" * item

    tokens = [
        answer_of([MOST_BYTES, 1], 100, str, view)[1],
        answer_of([1, MOST_BYTES // 2, MOST_BYTES, 2], 100, str, view)[1],
        answer_of([1, 2, 3], 2, str, view)[1],
        answer_of([1, MOST_BYTES], 2, str, view)[1],
        answer_of([], 2, str, view)[1],
    ]

    assert tokens == [str(MOST_BYTES), str(MOST_BYTES), "2", None, None]
