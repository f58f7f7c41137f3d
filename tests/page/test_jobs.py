"""The link of `runwatch run` in a browser: from the first second to the job's run, in one click."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream, curve

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy


def test_a_link_waits_for_its_job_and_follows_it_to_its_run(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window(key="")
    job = RunId(ulid(1_800_000_000_000, bytes(10)))
    page = visitor.open(f"/login?next=/jobs/{job}%3Fname%3Dtrain.py#key={service.admin_key}")
    expect(page.get_by_role("heading")).to_have_text("Waiting for train.py to call attach()")
    visitor.shoot("job")

    sender = Sender(service.url, service.admin_key)
    sender.ask("POST", "/runs", {"run_id": job, "name": "mine"})
    sender.attempt(job)

    expect(page).to_have_url(f"{service.url}/runs/{job}")
    Stream(sender, job).send(0, curve(0, 100))
    sender.http.clear()
    expect(page.locator("#in-view")).to_contain_text("99")


def test_a_page_that_waits_says_when_the_service_has_ended(window: OpenWindow) -> None:
    visitor = window()
    visitor.foreseen = ("ERR_INTERNET_DISCONNECTED",)
    page = visitor.open(f"/jobs/{ulid(1_800_000_000_001, bytes(10))}")
    expect(page.get_by_role("heading")).to_have_text("Waiting for the job to call attach()")

    visitor.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    visitor.context.set_offline(False)

    expect(page.get_by_role("status")).to_be_visible()
