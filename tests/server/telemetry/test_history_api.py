"""Which attempt and segment speaks for which steps, and which were undone."""

from dataclasses import replace

import pytest
from tests.server.harness import Api, frame

from runwatch.frames import Event
from runwatch.vocabulary import RunId
from runwatch_server.web import pagination

pytestmark = pytest.mark.anyio


async def test_what_a_rollback_undid_is_told_apart_from_what_is_in_force(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0] * 10))
    await api.post(run_id, frame(2, [1.0] * 8, first_step=5, segment=1))

    history = await api.json("GET", f"/runs/{run_id}/history")

    told = [
        (one["segment"], one["first_step"], one["last_step"], one["in_force"])
        for one in history["stretches"]
    ]
    assert told == [(0, 0, 4, True), (1, 5, 12, True), (0, 5, 9, False)]


async def test_a_long_history_comes_in_pages_and_those_in_force_come_first(api: Api) -> None:
    run_id = await api.new_run()
    for segment in range(7):  # each undoes the one before, but for its first step
        await api.post(run_id, frame(segment + 1, [1.0] * 3, first_step=segment, segment=segment))
    whole = await api.json("GET", f"/runs/{run_id}/history")
    first = await api.json("GET", f"/runs/{run_id}/history?limit=5")
    pages = [first]
    while token := pages[-1]["next_token"]:
        path = f"/runs/{run_id}/history?limit=5&next_token={token}"
        pages.append(await api.json("GET", path))

    assert whole["next_token"] is None
    assert len(whole["stretches"]) > 10
    assert [one for page in pages for one in page["stretches"]] == whole["stretches"]
    assert all(len(page["stretches"]) == 5 for page in pages[:-1])
    assert [len(page["ranks"]) for page in pages] == [1, *[0] * (len(pages) - 1)]


async def test_a_history_is_cut_by_its_bytes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "MOST_BYTES", 100)
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0] * 10))
    await api.post(run_id, frame(2, [1.0] * 8, first_step=5, segment=1))

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert (len(history["stretches"]), history["next_token"]) == (2, "2")


async def test_a_run_says_which_ranks_have_spoken(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0] * 10))

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert history["ranks"] == [{"rank": 0, "last_step": 9, "host": None}]


async def post_from(api: Api, run_id: RunId, rank: int, host: str, *, attempt: int = 1) -> None:
    told = Event(0, "host", 1.7e9, {"hostname": host})
    await api.post(
        run_id, replace(frame(1, [1.0] * 10, attempt=attempt, events=(told,)), rank=rank)
    )


async def test_each_rank_of_several_names_its_own_host(api: Api) -> None:
    run_id = await api.new_run(world_size=3, host={"hostname": "whoever came first"})
    await post_from(api, run_id, 0, "node-1")
    await post_from(api, run_id, 1, "node-2")
    await api.post(run_id, replace(frame(1, [1.0] * 10), rank=2))

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert [one["host"] for one in history["ranks"]] == ["node-1", "node-2", None]


async def test_the_hosts_are_those_of_the_attempt_that_trains(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    await post_from(api, run_id, 1, "node-2")
    second = await api.new_attempt(run_id, world_size=2)
    await post_from(api, run_id, 1, "node-9", attempt=second)

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert history["ranks"] == [{"rank": 1, "last_step": 9, "host": "node-9"}]


async def test_a_run_of_one_process_has_the_host_of_its_attempt(api: Api) -> None:
    run_id = await api.new_run(host={"hostname": "node-7"})
    await api.post(run_id, frame(1, [1.0] * 10))

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert history["ranks"] == [{"rank": 0, "last_step": 9, "host": "node-7"}]
