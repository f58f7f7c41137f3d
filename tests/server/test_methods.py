"""An address that is asked in a way that it does not know says which ways it knows."""

import pytest
from tests.server.harness import Api

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
