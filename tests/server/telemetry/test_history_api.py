"""Which attempt and segment speaks for which steps, and which were undone."""

import pytest
from tests.server.harness import Api, frame

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


async def test_a_run_says_which_ranks_have_spoken(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0] * 10))

    history = await api.json("GET", f"/runs/{run_id}/history")

    assert history["ranks"] == [{"rank": 0, "last_step": 9}]
