"""An address that is asked in a way that it does not know says which ways it knows."""

import asyncio

import pytest
from tests.server.harness import Api
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/runs", ["GET", "POST"]),
        ("PATCH", "/rules/01", ["DELETE", "GET", "PUT"]),
        ("POST", "/runs/01/series", ["GET"]),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    api: Api, method: str, path: str, allowed: list[str]
) -> None:
    reply = await api.call(method, path)

    assert (reply.status_code, reply.json()["code"]) == (405, "method_not_allowed")
    assert reply.headers["Allow"] == ", ".join(allowed)
    assert reply.json()["detail"] == f"method: found {method}, wanted {' or '.join(allowed)}"


async def test_a_browser_is_told_them_too(api: Api) -> None:
    reply = await api.http.request("PUT", "/runs", headers={"Accept": "text/html"})

    assert (reply.status_code, reply.headers["Allow"]) == (405, "GET")
    assert "found PUT, wanted GET" in reply.text


@pytest.mark.parametrize(
    "path", ["/healthz", "/login", "/api/v1/runs", "/", "/nothing", "/rules/01"]
)
async def test_a_head_is_answered_as_a_get_without_its_body(api: Api, path: str) -> None:
    key = {"Authorization": f"Bearer {api.admin_key}", "X-Request-Id": "mine"}

    got = await api.http.get(path, headers=key)
    head = await api.http.head(path, headers=key)

    assert head.status_code == got.status_code
    assert head.headers == got.headers
    assert (head.content, got.content != b"") == (b"", True)


async def test_a_head_needs_the_key_that_a_get_needs(api: Api) -> None:
    interface = await api.call("HEAD", "/runs", key="")
    page = await api.http.head("/", headers={"Accept": "text/html"}, follow_redirects=False)

    assert (interface.status_code, page.status_code) == (401, 303)


async def test_a_head_where_no_get_is_answered_changes_nothing(api: Api) -> None:
    run_id = await api.new_run()

    reply = await api.call("HEAD", f"/runs/{run_id}/attempts/1/close")

    assert (reply.status_code, reply.headers["Allow"]) == (405, "POST")
    assert (await api.json("GET", f"/runs/{run_id}"))["state"] == "starting"


@pytest.mark.parametrize("path", ["/stream?run_id={run_id}", "/fleet/stream"])
async def test_a_head_of_a_stream_ends(api: Api, path: str) -> None:
    run_id = await api.new_run()

    async with asyncio.timeout(LONGEST_S):
        reply = await api.call("HEAD", path.format(run_id=run_id))

    assert reply.headers["Content-Type"].startswith("text/event-stream")


async def test_the_address_that_a_person_types_leads_to_the_runs(api: Api) -> None:
    headers = {"Authorization": f"Bearer {api.admin_key}", "Accept": "text/html"}
    reply = await api.http.get("/runs", headers=headers, follow_redirects=False)
    stranger = await api.http.get("/runs", headers={"Accept": "text/html"}, follow_redirects=False)

    assert (reply.status_code, reply.headers["Location"]) == (303, "/")
    assert stranger.headers["Location"] == "/login?next=/runs"


async def test_a_status_has_one_title_whoever_refuses(api: Api) -> None:
    replies = [
        await api.call("GET", "/runs?nope=1"),
        await api.call("GET", "/runs?limit=none"),
        await api.call("POST", "/runs", json={}),
        await api.call("POST", "/rules", json={}),
    ]

    assert [reply.status_code for reply in replies] == [422] * 4
    assert {reply.json()["title"] for reply in replies} == {"Cannot be used"}
    assert (await api.call("GET", "/nothing")).json()["title"] == "Not found"
