"""A refusal can be read, however odd what was sent."""

from collections.abc import AsyncIterator

import pytest
from tests.server.harness import Api

pytestmark = pytest.mark.anyio


async def test_a_long_text_is_quoted_in_part(api: Api) -> None:
    run_id = await api.new_run()

    reply = await api.call("PATCH", f"/runs/{run_id}", json={"policy": "a" * 100_000})

    detail = reply.json()["detail"]
    assert len(detail) < 2100
    assert detail.startswith("body: Invalid enum value 'aaa")
    assert detail.endswith("wanted ask, auto, observe")


async def test_a_body_of_unknown_length_is_told_its_limit(api: Api) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield bytes(2**16)

    reply = await api.call("POST", "/runs", content=body())

    assert (reply.status_code, reply.json()["code"]) == (413, "body_too_large")
    assert reply.json()["detail"] == "body: found too many bytes, wanted at most 1048576"


@pytest.mark.parametrize("path", ["/api/v1/alerts/", "/api/v1/runs/", "/healthz/"])
async def test_an_address_with_a_slash_more_is_not_found(api: Api, path: str) -> None:
    key = {"Authorization": f"Bearer {api.admin_key}"}

    reply = await api.http.get(path, headers=key, follow_redirects=False)

    assert (reply.status_code, reply.json()["code"]) == (404, "route_not_found")
