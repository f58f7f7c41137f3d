"""Who changed, closed or removed a run, and who logged in, is in the audit with their key."""

from typing import Any

import pytest
from tests.server.harness import Api

pytestmark = pytest.mark.anyio


async def deeds(api: Api, **params: str) -> list[tuple[str, Any]]:
    """Newest first, without those of keys."""
    found = await api.json("GET", "/audit", params=params)
    return [(one["deed"], one["detail"]) for one in found["deeds"] if "key_" not in one["deed"]]


async def test_changes_of_a_run_say_from_what_and_to_what(api: Api) -> None:
    run_id = await api.new_run()
    key = await api.new_key("read", "control", name="on call")

    for change in ({"policy": "ask"}, {"policy": "auto", "name": "renamed"}, {"policy": "auto"}):
        await api.json("PATCH", f"/runs/{run_id}", json=change, key=key)

    found = await api.json("GET", "/audit", params={"run_id": run_id})
    assert {one["actor"] for one in found["deeds"]} == {f"key:{key.split('_')[1]}"}
    assert await deeds(api, run_id=run_id) == [
        ("run_policy_changed", {"from": "ask", "to": "auto"}),
        ("run_renamed", {"from": "test", "to": "renamed"}),
        ("run_policy_changed", {"from": "the service's", "to": "ask"}),
    ]


async def test_close_and_removal_stay_after_the_run(api: Api) -> None:
    run_id = await api.new_run()
    closing = {"status": "failed", "reason": "out of memory", "last_step": 7}
    for _ in range(2):
        await api.json("POST", f"/runs/{run_id}/attempts/1/close", json=closing)
    await api.call("DELETE", f"/runs/{run_id}")

    assert await deeds(api, run_id=run_id) == [
        ("run_removed", {"name": "test", "state": "failed"}),
        ("attempt_closed", {"attempt": 1, "status": "failed", "reason": "out of memory"}),
    ]


async def test_removal_that_is_refused_leaves_no_entry(api: Api) -> None:
    run_id = await api.new_run()

    assert (await api.call("DELETE", f"/runs/{run_id}")).status_code == 409
    assert await deeds(api, run_id=run_id) == []


async def test_login_names_the_key(api: Api) -> None:
    key = await api.new_key("read", name="a person")
    key_id = key.split("_")[1]

    reply = await api.http.post(
        "/login", data={"key": key}, headers={"Sec-Fetch-Site": "same-origin"}
    )

    assert reply.status_code == 200
    newest = (await api.json("GET", "/audit"))["deeds"][0]
    found = newest["deed"], newest["actor"], newest["subject"]
    assert found == ("session_opened", f"key:{key_id}", key_id)
