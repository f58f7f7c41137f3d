"""The link of `runwatch run`: it waits for the job's run, and then leads to it."""

import httpx
import pytest
from tests.server.harness import Api, new_id

pytestmark = pytest.mark.anyio


async def page(api: Api, address: str, key: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key or api.admin_key}", "Accept": "text/html"}
    return await api.http.get(address, headers=headers)


async def test_a_job_without_a_run_is_waited_for_by_its_name(api: Api) -> None:
    reply = await page(api, f"/jobs/{new_id()}?name=<b>train.py")

    assert reply.status_code == 200
    assert "Waiting for" in reply.text
    assert "&lt;b&gt;train.py" in reply.text


async def test_a_job_leads_to_its_run_also_to_one_with_an_id_of_its_own(api: Api) -> None:
    job = new_id()
    run_id = await api.new_run(host={"job": job})

    reply = await page(api, f"/jobs/{job}?name=train.py")
    of_run = await page(api, f"/jobs/{run_id}")

    assert (reply.status_code, reply.headers["Location"]) == (303, f"/runs/{run_id}")
    assert of_run.headers["Location"] == f"/runs/{run_id}"


async def test_a_job_of_several_runs_leads_to_a_list_of_them(api: Api) -> None:
    job = new_id()
    runs = [await api.new_run(host={"job": job}) for _ in range(2)]
    other = await api.new_run()

    reply = await page(api, f"/jobs/{job}")
    listed = await page(api, reply.headers["Location"])

    assert all(f"/runs/{run_id}" in listed.text for run_id in runs)
    assert f"/runs/{other}" not in listed.text


async def test_a_run_of_another_project_is_waited_for_like_none(api: Api) -> None:
    job = new_id()
    await api.new_run(project="theirs", host={"job": job})
    reader = await api.new_key("read", project="ours")

    reply = await page(api, f"/jobs/{job}", reader)

    assert (reply.status_code, "Waiting for" in reply.text) == (200, True)


async def test_what_is_no_job_is_refused(api: Api) -> None:
    assert (await page(api, "/jobs/7")).status_code == 422


@pytest.mark.parametrize(("site", "logs_in"), [("none", True), ("cross-site", False), ("", False)])
async def test_only_a_link_that_is_on_no_page_logs_in_by_itself(
    api: Api, site: str, logs_in: bool
) -> None:
    """Else a page could log its reader in with a key of somebody else's."""
    headers = {"Sec-Fetch-Site": site} if site else {}

    reply = await api.http.get("/login?next=/alerts", headers=headers)

    assert ("data-logs-in" in reply.text) == logs_in
