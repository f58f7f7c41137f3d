"""A reader by keys stays where he stands when something is drawn anew under him."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun

pytestmark = pytest.mark.heavy

FAULTY = """\
version: 1
groups:
- name: ours
  rules:
  - alert: Own
    when: losss > 3
"""


def test_who_tries_a_chart_again_stays_on_it(window: OpenWindow, service: RealService) -> None:
    run = SentRun(service, "read by keys")
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("503",)
    series = "**/series?*"
    page = visitor.page
    page.route(series, lambda route: route.fulfill(status=503, json={"title": "Away"}))
    visitor.open(f"/runs/{run.id}")
    chart = page.locator("#charts .chart").first
    again = chart.get_by_role("button", name="Try again")
    again.focus()

    with page.expect_response(series):
        page.keyboard.press("Enter")
    visitor.let_it_draw()
    expect(again).to_be_focused()

    page.unroute(series)
    page.keyboard.press("Enter")
    expect(chart).to_have_attribute("data-drawn", "0-19")
    expect(chart.locator(".plot")).to_be_focused()


def test_who_goes_to_a_fault_of_a_rule_stays_on_it(window: OpenWindow) -> None:
    visitor = window()
    page = visitor.open("/rules/new")
    text = page.get_by_label("Rule file")
    text.fill(FAULTY)
    fault = page.locator("#verdict button")
    expect(fault).to_contain_text("losss")

    with page.expect_response("**/rules/check"):
        text.fill(f"{FAULTY}    severity: info\n")
        fault.focus()
    visitor.let_it_draw()

    expect(fault).to_be_focused()


def test_who_closes_a_dialog_is_back_where_it_was_opened(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "silenced by keys")
    run.send([2.0] * 10 + ["NaN"] * 3)
    page = window().open(f"/alerts/{run.wait_for_alert('NonFinite')}")
    opener = page.locator("[data-opens=silence]")
    opener.press("Enter")
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()

    opener.press("Enter")
    page.get_by_label("Why").fill("by keys")
    page.get_by_label("Why").press("Enter")
    expect(page.locator(".note", has_text="by keys")).to_be_visible()
    expect(opener).to_be_focused()  # another button than before: the page was drawn anew

    page.locator("[data-opens=ack]").press("Enter")
    page.get_by_label("Note").press("Enter")
    expect(page.locator("[data-opens=ack]")).to_have_count(0)
    expect(page.locator("main")).to_be_focused()
