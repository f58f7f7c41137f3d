"""What is said to those who have a page or a dialog open while the service goes away, or what
they look at, or their key."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.line import Line
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


def test_a_service_that_stands_still_is_told_although_its_line_is_open(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "told by nobody")
    run.send([2.0] * 20)
    all_runs, one_run, alerts = (window() for _ in range(3))
    for visitor, path in ((all_runs, "/"), (one_run, f"/runs/{run.id}")):
        expect(visitor.open(path).locator("#live")).to_have_text("Live")
    told = alerts.open("/alerts").get_by_text("The service does not answer")

    service.pause()
    try:
        for visitor in (all_runs, one_run):
            expect(visitor.page.locator("#live")).to_have_text("No answer")
        expect(one_run.page.locator("#unanswered")).to_be_visible()
        expect(told).to_be_visible()
    finally:
        service.resume()

    for visitor in (all_runs, one_run):
        expect(visitor.page.locator("#live")).to_have_text("Live")
    run.send([2.0] * 20)
    expect(one_run.page.locator("#in-view")).to_contain_text("39")
    expect(told).to_be_hidden()


def test_why_a_run_could_not_be_told_is_taken_back_once_it_can(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "told again")
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("ERR_FAILED",)
    visitor.page.route("**/timeline?*", lambda route: route.abort())
    page = visitor.open(f"/runs/{run.id}")
    told = page.get_by_text("The service cannot be reached")
    expect(told).to_be_visible()

    page.unroute("**/timeline?*")
    run.send([2.0] * 20)

    expect(page.locator("#in-view")).to_contain_text("39")
    expect(told).to_be_hidden()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, "<html>Log in</html>", "What came is no answer of the service."),
        (502, '{"error": "upstream"}', "Bad Gateway"),
        (502, "null", "Bad Gateway"),
    ],
)
def test_an_answer_that_is_none_of_the_service_is_not_called_its_absence(
    window: OpenWindow, service: RealService, status: int, body: str, words: str
) -> None:
    run = SentRun(service, "told by a proxy")
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("Failed to load resource",)
    visitor.page.route("**/timeline?*", lambda route: route.fulfill(status=status, body=body))

    page = visitor.open(f"/runs/{run.id}")

    expect(page.locator("#at")).to_contain_text(words)


def test_an_update_that_was_put_off_fails_in_words_and_not_on_the_console(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "put off in vain")
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("Failed to load resource", "ERR_INTERNET_DISCONNECTED")
    page = visitor.open(f"/runs/{run.id}")
    expect(page.locator("#live")).to_have_text("Live")

    visitor.context.set_offline(True)
    for _ in range(3):  # more than are answered at once
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(6000)  # for as long as two updates are apart

    expect(page.locator("#at")).to_have_text("The service cannot be reached. Is it running?")


def test_charts_whose_library_did_not_come_are_drawn_when_one_tries_again(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "drawn at the second try")
    run.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("ERR_FAILED",)
    library, series, line = "**/plotly.min*", "**/series?*", Line(visitor.page)
    line.cut(library)
    page = visitor.open(f"/runs/{run.id}")
    chart = page.locator("#charts .chart").first
    expect(chart.locator(".says")).to_contain_text("The charts' library could not be loaded.")

    line.hold(series)  # else the page, which tries again by itself, may be faster
    with page.expect_request(series):
        chart.get_by_role("button", name="Try again").click()
    line.mend(library)
    line.mend(series)

    expect(chart).to_have_attribute("data-drawn", "0-19")


def test_a_chart_that_is_drawn_for_another_reason_says_no_longer_that_it_could_not(
    window: OpenWindow, service: RealService
) -> None:
    first, second = SentRun(service, "drawn in the dark"), SentRun(service, "beside it")
    first.send([2.0] * 20)
    second.send([2.0] * 20)
    visitor = window()
    visitor.foreseen = ("ERR_FAILED",)
    line = Line(visitor.page)
    line.cut("**/plotly.min*")
    page = visitor.open(f"/compare?a={first.id}&b={second.id}")
    chart = page.locator("#charts .chart").first
    expect(chart.locator(".says")).to_contain_text("The charts' library could not be loaded.")

    line.mend("**/plotly.min*")
    page.get_by_role("button", name="Change between light and dark").click()

    expect(chart).to_have_attribute("data-drawn", "0-19")
    expect(chart.locator(".says")).to_be_hidden()


@pytest.mark.parametrize("path", ["/runs/{run}", "/alerts/{alert}"])
def test_what_is_removed_is_not_shown_any_longer(
    window: OpenWindow, service: RealService, path: str
) -> None:
    run = SentRun(service, "removed under the eyes", layers=("embed",))
    run.send(["NaN"] * 5, ["NaN"])
    visitor = window()
    visitor.foreseen = ("404",)
    page = visitor.open(path.format(run=run.id, alert=run.wait_for_alert("NonFinite")))
    expect(page.get_by_role("heading", name="Not found")).to_be_hidden()

    service.ask("POST", f"/runs/{run.id}/attempts/1/close", {"status": "failed"})
    service.ask("DELETE", f"/runs/{run.id}")

    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def test_the_list_of_alerts_wants_a_key_anew_once_its_own_is_revoked(
    window: OpenWindow, service: RealService
) -> None:
    made = service.ask("POST", "/keys", {"name": "for an hour", "scopes": ["read"]})
    page = window(key=made["key"]).open("/alerts?severity=critical")

    service.ask("DELETE", f"/keys/{made['id']}")

    expect(page).to_have_url(f"{service.url}/login?next=/alerts%3Fseverity%3Dcritical")
