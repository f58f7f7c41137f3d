"""A run to which more happened than a list on its page shows at once."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream, curve

from runwatch.frames import Event

pytestmark = pytest.mark.heavy


def test_the_list_says_of_how_many_events_it_shows_the_newest_and_gives_the_rest(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("1000 events")
    told = [Event(step, "note", 1e9 + step, {}) for step in range(1000)]
    Stream(sender, run_id).send(0, curve(0, 1000), events=told)
    sender.http.clear()
    visitor = window()
    page = visitor.open(f"/runs/{run_id}")
    events = page.locator("#timeline .events")
    rows = events.locator("tbody tr")

    expect(events.locator("summary")).to_have_text("Events (newest 300 of 1\u202f000)")
    events.locator("summary").click()
    expect(rows).to_have_count(300)
    visitor.shoot("run-many-events")
    events.get_by_role("button", name="Show all events").click()

    expect(rows).to_have_count(1000)
    expect(events.locator("summary")).to_have_text("Events (1\u202f000)")
    expect(events.get_by_role("button", name="Show all events")).to_be_hidden()
