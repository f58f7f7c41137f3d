"""What is said to those who have a page or a dialog open while the service goes away."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun

pytestmark = pytest.mark.heavy


def test_an_open_dialog_waits_for_a_service_that_does_not_answer(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "asked in vain", allow=("stop", "checkpoint"))
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("Failed to load resource",)
    page = visitor.open(f"/runs/{run.id}/act")
    page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog", name="Stop the run")
    go = dialog.get_by_role("button", name="Stop the run")

    visitor.context.set_offline(True)
    expect(dialog.get_by_role("alert")).to_contain_text("The service does not answer")
    dialog.get_by_label("Type the run's name").fill("asked in vain")
    expect(go).to_be_disabled()
    visitor.shoot("act-away-dialog")

    visitor.context.set_offline(False)
    expect(go).to_be_enabled()
    expect(dialog.get_by_role("alert")).to_be_hidden()


def test_who_acknowledges_is_told_that_the_service_does_not_answer(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "acknowledged in vain", layers=("embed",))
    run.send(["NaN"] * 5, ["NaN"])
    visitor = window()
    visitor.foreseen = ("Failed to load resource", "ERR_INTERNET_DISCONNECTED")
    page = visitor.open(f"/alerts/{run.wait_for_alert('NonFinite')}")
    expect(page.locator("#curves [data-drawn]").first).to_be_visible()
    page.get_by_role("button", name="Acknowledge").click()
    dialog = page.locator("#ack")

    visitor.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(dialog.get_by_role("alert")).to_contain_text("The service does not answer")
    expect(dialog.get_by_role("button", name="Acknowledge")).to_be_disabled()
    expect(page.locator("#unanswered")).to_be_visible()

    visitor.context.set_offline(False)
    expect(dialog.get_by_role("button", name="Acknowledge")).to_be_enabled()


def test_the_list_of_alerts_says_when_it_is_of_before(window: OpenWindow) -> None:
    visitor = window()
    visitor.foreseen = ("Failed to load resource",)
    page = visitor.open("/alerts")
    told = page.get_by_text("The service does not answer")
    expect(told).to_be_hidden()

    visitor.context.set_offline(True)
    expect(told).to_be_visible()

    visitor.context.set_offline(False)
    expect(told).to_be_hidden()
