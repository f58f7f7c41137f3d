"""A run that had ended when its page was opened, and goes on: the page follows it."""

import pytest
from playwright.sync_api import Route, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream, curve

pytestmark = pytest.mark.heavy


def test_a_page_opened_after_a_run_s_end_follows_its_next_attempt(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("goes on")
    Stream(sender, run_id).send(0, curve(0, 100))
    sender.ask("POST", f"/runs/{run_id}/attempts/1/close", {"status": "failed", "reason": "node"})
    page = window().open(f"/runs/{run_id}")
    expect(page.locator("#banner .state")).to_have_text("failed")
    expect(page.locator("#live")).to_be_hidden()

    second = sender.attempt(run_id, resume_step=100)
    Stream(sender, run_id, attempt=second).send(100, curve(100, 50))
    sender.http.clear()

    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#banner .state")).to_have_text("training")
    expect(page.locator("#in-view")).to_contain_text("149")
    expect(page.locator("#timeline .bar-label")).to_have_text(["attempt 1", "attempt 2"])
    expect(page.get_by_role("button", name="Checkpoint")).to_be_enabled()


def test_the_table_of_attempts_follows_a_run_that_begins_again(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("two attempts")
    Stream(sender, run_id).send(0, curve(0, 100))
    page = window().open(f"/runs/{run_id}")
    rows = page.locator("#attempts tbody tr")
    expect(rows).to_have_count(1)
    expect(page.locator("#live")).to_have_text("Live")

    second = sender.attempt(run_id, resume_step=80)
    Stream(sender, run_id, attempt=second).send(80, curve(80, 50))
    sender.http.clear()

    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator("[data-label='To step']")).to_have_text("129")
    expect(rows.nth(1)).to_contain_text("never said so: another one followed")


def test_the_page_of_a_run_with_a_long_history_gets_all_parts_of_it(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("three attempts")
    Stream(sender, run_id).send(0, curve(0, 100))
    for first_step in (100, 150):
        attempt = sender.attempt(run_id, resume_step=first_step)
        Stream(sender, run_id, attempt=attempt).send(first_step, curve(first_step, 50))
    sender.http.clear()
    visitor = window()

    def one_at_a_time(route: Route) -> None:
        url = route.request.url
        route.continue_(url=f"{url}{'&' if '?' in url else '?'}limit=1")

    visitor.page.route(f"**/{run_id}/history*", one_at_a_time)
    page = visitor.open(f"/runs/{run_id}")

    labels = ["attempt 1", "attempt 2", "attempt 3"]
    expect(page.locator("#timeline .bar-label")).to_have_text(labels)
