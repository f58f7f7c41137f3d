"""A run's pages are shown whatever stands in its configuration, or in an address."""

import httpx
import pytest
from tests.server.harness import Api, frame, new_id

pytestmark = pytest.mark.anyio


async def page(api: Api, address: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {api.admin_key}", "Accept": "text/html"}
    return await api.http.get(address, headers=headers)


@pytest.mark.parametrize("number", ["²", "٢", "x", "-1"])
async def test_an_attempt_that_is_no_number_is_the_whole_run(api: Api, number: str) -> None:
    run_id = await api.new_run()

    reply = await page(api, f"/compare?a={run_id}@{number}")

    assert reply.status_code == 200
    assert f'<option value="{run_id}" selected>' in reply.text


async def test_a_total_beyond_every_float_is_shown_as_any_other(api: Api) -> None:
    run_id = new_id()
    body = {"run_id": run_id, "name": "long", "project": "p", "config": {"max_steps": 10**400}}
    await api.json("POST", "/runs", json=body)
    await api.new_attempt(run_id)
    await api.post(run_id, frame(1, [1.0, 2.0]))

    reply = await page(api, f"/runs/{run_id}")

    assert reply.status_code == 200


@pytest.mark.parametrize("path", ["", "/act"])
async def test_what_acts_on_a_run_stands_in_its_place_from_the_start(api: Api, path: str) -> None:
    """Buttons that come later push what somebody is about to press away."""
    run_id = await api.new_run(allow=["rollback"])

    reply = await page(api, f"/runs/{run_id}{path}")

    assert ">Roll back</button>" in reply.text
    assert "Policy: <strong>observe</strong>" in reply.text
