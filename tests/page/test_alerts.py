"""The list of alerts and an alert's card."""

import re

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun
from tests.page.visitor import PHONE
from tests.waiting import until

pytestmark = pytest.mark.heavy

HOSTILE = "<img src=x onerror=alert(1)> \"' {{7*7}} & co"


@pytest.fixture(scope="module")
def broken_run(service: RealService) -> SentRun:
    """Its second layer's gradient became NaN at step 30."""
    run = SentRun(service, HOSTILE, layers=("embed", HOSTILE, "head"))
    run.send([2.0] * 30, [0.1, 0.2, 0.3])
    run.send(["NaN"] * 5, [0.1, "NaN", 0.3])
    run.wait_for_alert("NonFinite")
    return run


def test_what_fires_stands_in_the_list_and_leads_to_its_card(
    window: OpenWindow, broken_run: SentRun
) -> None:
    visitor = window()
    page = visitor.open("/alerts")
    row = page.get_by_role("row", name=HOSTILE).filter(has_text="NonFinite")
    expect(row).to_contain_text("critical")
    expect(row).to_contain_text("firing")
    visitor.shoot("alerts")

    row.get_by_role("link", name="NonFinite").click()

    expect(page.get_by_role("heading", name="NonFinite", exact=True)).to_be_visible()
    expect(page.locator("dd", has_text=HOSTILE).first).to_be_visible()
    expect(page.locator("dd a")).to_have_attribute("href", f"/runs/{broken_run.id}")


def test_new_alerts_come_in_by_themselves(window: OpenWindow, service: RealService) -> None:
    visitor = window()
    page = visitor.open("/alerts")
    run = SentRun(service, "comes while one looks")

    run.send([2.0] * 10)
    run.send(["NaN"] * 3)

    expect(page.get_by_role("row", name="comes while one looks").first).to_be_visible()


def test_a_click_is_heard_though_its_row_changes_meanwhile(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "changes while one clicks")
    run.send([2.0] * 10 + ["NaN"] * 3)
    alert_id = run.wait_for_alert("NonFinite")
    visitor = window()
    page = visitor.open(f"/alerts?run_id={run.id}")
    page.get_by_role("link", name="NonFinite").hover()

    page.mouse.down()
    with page.expect_response(re.compile("/alerts")):
        service.ask("POST", f"/alerts/{alert_id}/ack", {"note": "meanwhile"})
    visitor.let_it_draw()
    page.mouse.up()

    expect(page.get_by_role("heading", name="NonFinite", exact=True)).to_be_visible()


def test_a_run_that_ended_broken_says_so_wherever_one_looks(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "ended broken", layers=("embed", "head"))
    run.send([2.0] * 30, [0.1, 0.2])
    run.send(["NaN"] * 20, [0.1, "NaN"])
    alert_id = run.wait_for_alert("NonFinite")
    service.ask("POST", f"/runs/{run.id}/attempts/1/close", {"status": "finished"})
    until(lambda: service.ask("GET", f"/alerts/{alert_id}")["resolution"] == "run_ended")
    visitor = window()

    page = visitor.open(f"/runs/{run.id}")
    expect(page.get_by_role("heading", name="Open when it ended")).to_be_visible()
    expect(page.locator("#banner .state-bad")).to_have_text("finished")
    expect(page.locator("#alerts").get_by_role("link", name="NonFinite")).to_be_visible()
    visitor.shoot("run-ended-broken")
    page = visitor.open("/?group=trouble&search=ended+broken")
    expect(page.locator("tr[data-run] .severity-critical")).to_be_visible()
    page = visitor.open(f"/alerts/{alert_id}")
    expect(page.get_by_text("open when the run ended")).to_be_visible()


def test_filters_narrow_the_list(window: OpenWindow, broken_run: SentRun) -> None:
    page = window().open(f"/alerts?run_id={broken_run.id}")
    expect(page.get_by_role("row", name="NonFinite").first).to_be_visible()

    page.get_by_label("Severity").select_option("info")

    expect(page.get_by_text("Nothing fires with this filter")).to_be_visible()


def test_a_silence_is_made_seen_and_ended(window: OpenWindow, broken_run: SentRun) -> None:
    visitor = window()
    page = visitor.open(f"/alerts/{broken_run.wait_for_alert('NonFinite')}")

    page.get_by_role("button", name="Silence").click()
    page.get_by_label("Why").fill("known, being looked at")
    visitor.shoot("alert-silence")
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    expect(page.get_by_text("Silenced by first admin")).to_be_visible()

    visitor.open("/silences")
    expect(page.get_by_role("row", name="known, being looked at")).to_be_visible()
    visitor.shoot("silences")
    page.get_by_role("button", name="End it").click()
    expect(page.get_by_text("Nothing is silenced")).to_be_visible()


def test_a_window_that_recurs_is_made_by_the_clock_of_a_place_and_ended(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window()
    page = visitor.open("/silences")
    page.get_by_role("button", name="New maintenance window").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("On", exact=True).select_option("Saturday")
    dialog.get_by_label("From").fill("02:30")
    dialog.get_by_label("Time zone").fill("Europe/Berlin")
    dialog.get_by_label("Why").fill("the file system is looked through")
    visitor.shoot("silences-new-window")
    dialog.get_by_role("button", name="Create").click()

    row = page.get_by_role("row", name="the file system is looked through")
    expect(row).to_contain_text("each 30 2 * * sat (Europe/Berlin), for 120 min")
    (made,) = service.ask("GET", "/silences")["silences"]
    assert made["recurs"] == {"cron": "30 2 * * sat", "for_s": 7200.0, "timezone": "Europe/Berlin"}
    row.get_by_role("button", name="End it").click()
    expect(row).to_have_count(0)


def test_another_project_s_alert_is_not_there(
    window: OpenWindow, service: RealService, broken_run: SentRun
) -> None:
    theirs = service.ask(
        "POST", "/keys", {"name": "theirs", "scopes": ["read"], "project": "theirs"}
    )["key"]
    visitor = window(key=theirs)
    visitor.foreseen = ("404",)
    page = visitor.open("/alerts?show=all")
    expect(page.get_by_text("No alert matches")).to_be_visible()

    for path in (
        f"/alerts/{broken_run.wait_for_alert('NonFinite')}",
        f"/runs/{broken_run.id}/act",
    ):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 404
        expect(page.get_by_text("There is nothing at this address")).to_be_visible()


def test_a_reader_sees_and_cannot_act(
    window: OpenWindow, service: RealService, broken_run: SentRun
) -> None:
    visitor = window(key=service.create_key("read"), viewport=PHONE, theme="dark")
    page = visitor.open(f"/alerts/{broken_run.wait_for_alert('NonFinite')}")
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)

    visitor.open(f"/runs/{broken_run.id}/act")
    expect(page.get_by_text("this needs one with the scope control")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    visitor.open("/alerts")
    visitor.shoot("alerts-dark-phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
