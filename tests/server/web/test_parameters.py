"""A query parameter that a route does not know is refused by its name."""

from pathlib import Path

import pytest
from tests.server.harness import Api, serve

pytestmark = pytest.mark.anyio


async def test_a_misspelt_filter_is_refused_and_the_right_one_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as api:
        refused = await api.call("GET", "/alerts?run=01M7ZCTTGHMP6SFQRK6YE6PX4W")

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "unknown_parameter")
    assert "did you mean 'run_id'?" in problem["detail"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=x", "query.limit: found 'x', wanted a whole number"),
        ("limit=0", "query.limit: found '0', wanted 1 or more"),
        ("limit=501", "query.limit: found '501', wanted 500 or less"),
        ("severity=loud", "query.severity.0: found 'loud', wanted 'info', 'warning' or 'critical'"),
    ],
)
async def test_a_value_that_cannot_be_used_is_told_in_plain_words(
    query: str, told: str, tmp_path: Path
) -> None:
    async with serve(tmp_path) as api:
        refused = await api.call("GET", f"/alerts?{query}")

    assert (refused.status_code, refused.json()["detail"]) == (422, told)


async def test_a_value_that_is_said_twice_is_refused(api: Api) -> None:
    """Else the last one would be taken, and nobody would know."""
    refused = await api.call("GET", "/alerts?rule=NonFinite&rule=LossSpike")

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "repeated_parameter")
    assert problem["detail"] == "query.rule: found 2 values, wanted one"


async def test_a_list_may_be_said_value_by_value(api: Api) -> None:
    assert await api.json("GET", "/alerts?state=firing&state=resolved")


async def test_of_a_long_value_the_beginning_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path) as api:
        refused = await api.call("GET", f"/alerts?limit={'9' * 5000}")

    assert len(refused.json()["detail"]) < 200


async def test_an_address_without_a_route_is_told_in_a_sentence(tmp_path: Path) -> None:
    async with serve(tmp_path) as api:
        refused = await api.call("GET", "/no-such-thing")

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (404, "route_not_found")
    assert problem["detail"] == "There is nothing at this address."


async def test_parameters_of_shared_dependencies_are_known(tmp_path: Path) -> None:
    async with serve(tmp_path) as api:
        run_id = await api.new_run()
        query = "metric=loss&from=0&to=9&points=5"
        answer = await api.call("GET", f"/runs/{run_id}/series?{query}")

    assert answer.status_code in (200, 404), answer.text


@pytest.mark.parametrize("path", ["/runs", "/alerts", "/notifications", "/audit"])
@pytest.mark.parametrize("token", ["garbage", "%00", "01arz3ndektsv4rrffq69g5fav"])
async def test_a_token_that_is_none_of_ours_is_refused(api: Api, path: str, token: str) -> None:
    reply = await api.call("GET", f"{path}?next_token={token}")

    assert reply.status_code == 422
    assert "next_token" in reply.json()["detail"]


async def test_a_refused_token_is_told_where_one_comes_from(api: Api) -> None:
    refused = await api.call("GET", "/runs?next_token=abc")

    told = "query.next_token: found 'abc', wanted one from an earlier answer of this list"
    assert refused.json()["detail"] == told


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_probe_may_add_what_it_likes(path: str, api: Api) -> None:
    """A refusal would be taken for a process that is down."""
    headers = {"Authorization": f"Bearer {api.admin_key}"}
    answer = await api.http.get(f"{path}?t=1732665600&name[]=up&name[]=down", headers=headers)

    assert answer.status_code == 200


async def test_a_page_opens_from_a_link_to_which_a_mail_gateway_has_added_something(
    api: Api,
) -> None:
    page = await api.http.get("/login?next=/alerts&utm_source=mail&utm_source=again")

    assert page.status_code == 200
