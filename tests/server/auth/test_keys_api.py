"""Keys over the interface: what each refusal says."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.server.harness import Api, HandClock, Storage, both_engines, serve

pytestmark = pytest.mark.anyio


async def test_without_a_key_nothing_is_answered(api: Api) -> None:
    response = await api.call("GET", "/runs", key="")

    assert response.status_code == 401
    assert response.json()["code"] == "missing_key"
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_key_of_another_service_is_unknown(api: Api, tmp_path: Path) -> None:
    async with serve(tmp_path / "other") as other:
        response = await api.call("GET", "/runs", key=other.admin_key)

    assert (response.status_code, response.json()["code"]) == (401, "unknown_key")


async def test_a_key_without_the_scope_is_told_which_one_is_missing(api: Api) -> None:
    reader = await api.new_key("read")

    response = await api.call("POST", "/runs", key=reader, json={})

    assert (response.status_code, response.json()["code"]) == (403, "missing_scope")
    assert "ingest" in response.json()["detail"]


async def test_a_revoked_key_is_refused_at_once(api: Api) -> None:
    reader = await api.new_key("read")
    await api.json("GET", "/runs", key=reader)

    await api.call("DELETE", f"/keys/{reader.split('_')[1]}")

    response = await api.call("GET", "/runs", key=reader)
    assert (response.status_code, response.json()["code"]) == (401, "revoked_key")


async def test_an_expired_key_is_refused(api: Api, hand_clock: HandClock) -> None:
    expires = datetime.fromtimestamp(hand_clock.now + 60, UTC).isoformat()
    reader = await api.new_key("read", expires_at=expires)
    await api.json("GET", "/runs", key=reader)

    hand_clock.now += 61

    response = await api.call("GET", "/runs", key=reader)
    assert (response.status_code, response.json()["code"]) == (401, "expired_key")


async def test_a_key_bound_to_a_project_sees_no_other(api: Api) -> None:
    run_id = await api.new_run(project="ours")
    theirs = await api.new_key("read", "ingest", "control", project="theirs")

    response = await api.call("GET", f"/runs/{run_id}", key=theirs)
    listed = await api.json("GET", "/runs", key=theirs)

    assert (response.status_code, response.json()["code"]) == (403, "foreign_project")
    assert listed["runs"] == []


async def test_the_first_key_is_made_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as first:
        key = first.admin_key

    async with serve(tmp_path) as second:
        assert second.admin_key == ""
        keys = await second.json("GET", "/keys", key=key)
        assert [entry["name"] for entry in keys["keys"]] == ["first admin"]


async def test_no_answer_but_the_first_holds_the_secret(api: Api) -> None:
    reader = await api.new_key("read")

    listed = await api.call("GET", "/keys")

    assert reader.split("_", 2)[2][:43] not in listed.text


async def test_a_key_bound_to_a_project_makes_none_for_another(api: Api) -> None:
    admin = await api.new_key("admin", project="ours")

    response = await api.call("POST", "/keys", key=admin, json={"name": "x", "scopes": ["admin"]})

    assert (response.status_code, response.json()["code"]) == (403, "foreign_project")


async def test_a_key_that_is_over_already_is_refused(api: Api) -> None:
    body = {"name": "a", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}
    refused = await api.call("POST", "/keys", json=body)

    assert refused.status_code == 422
    assert "expires_at: found 2020-01-01T00:00:00+00:00" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("expires_at", "status"),
    [("0001-01-01T00:00:00+14:00", 422), ("9999-12-31T23:59:59-12:00", 201)],
)
async def test_a_time_that_utc_has_no_date_for_is_taken_as_any_other(
    api: Api, expires_at: str, status: int
) -> None:
    body = {"name": "a", "scopes": ["read"], "expires_at": expires_at}
    answer = await api.call("POST", "/keys", json=body)

    assert answer.status_code == status


@both_engines
async def test_keys_come_in_pages_oldest_first(storage: Storage, hand_clock: HandClock) -> None:
    async with serve(storage, clock=hand_clock) as api:
        for _ in range(3):  # two of the four at one moment
            await api.new_key("read")
        hand_clock.now += 0.1
        made = [key["id"] for key in (await api.json("GET", "/keys"))["keys"]]

        first = await api.json("GET", "/keys", params={"limit": 3})
        rest = await api.json(
            "GET", "/keys", params={"limit": 3, "next_token": first["next_token"]}
        )

    assert [key["id"] for key in first["keys"] + rest["keys"]] == made
    assert (len(made), rest["next_token"]) == (4, None)


async def test_a_key_bound_to_a_project_is_shown_the_keys_of_that_project(api: Api) -> None:
    admin = await api.new_key("admin", project="ours")
    await api.new_key("read", project="theirs")

    listed = await api.json("GET", "/keys", key=admin)

    assert [key["project"] for key in listed["keys"]] == ["ours"]


@pytest.mark.parametrize("token", ["1", "x-abcdefgh", "1e9-abcdefgh", "1.5-ABCDEFGH"])
async def test_a_token_that_names_no_key_is_refused(api: Api, token: str) -> None:
    refused = await api.call("GET", "/keys", params={"next_token": token})

    assert refused.status_code == 422
