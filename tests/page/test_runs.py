"""The page of all runs: what stands first, what is found, and that it keeps itself up to date."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.line import Line
from tests.page.seeding import Sender, Stream, curve, send_nan
from tests.page.visitor import PHONE

pytestmark = pytest.mark.heavy

HOSTILE = "<script>alert(1)</script>"
RIGHT_TO_LEFT = "تشغيل \u202etxt.exe"
READ_AS_WRITTEN = "تشغيل [U+202E]txt.exe"
LIST = re.compile(r"/$")
"""The address of the list of all runs."""
LONG = "a-very-long-name-" * 14


@pytest.fixture(scope="module")
def sender(service: RealService) -> Iterator[Sender]:
    sender = Sender(service.url, service.admin_key)
    yield sender
    sender.http.clear()


@pytest.fixture(scope="module", autouse=True)
def fleet(sender: Sender) -> None:
    """One in trouble, one that trains, one that ended, and some with names nobody wants."""
    send_nan(sender, HOSTILE, num_layers=12)
    Stream(sender, sender.open("gpt-trains", project="speech", owner="ada")).send(0, curve(0, 200))
    done = sender.open("gpt-done", project="speech", owner="noor")
    Stream(sender, done).send(0, curve(0, 100))
    sender.ask("POST", f"/runs/{done}/attempts/1/close", {"status": "finished", "reason": "done"})
    sender.open(RIGHT_TO_LEFT)
    sender.open(LONG)


def names(page: Page) -> list[str]:
    return page.locator("#fleet td.name a").all_inner_texts()


def test_the_run_in_trouble_stands_first_with_its_alerts_and_curve(window: OpenWindow) -> None:
    visitor = window()
    page = visitor.open("/")

    first = page.locator("tr[data-run]").first
    expect(first.locator("td.name a")).to_have_text(HOSTILE)
    expect(first.locator(".severity-critical").first).to_be_visible()
    expect(first.locator(".loss-now")).to_have_text("NaN")
    expect(first.locator("svg.spark .spark-nan").first).to_be_visible()
    visitor.shoot("runs")


def test_names_are_text_whatever_they_hold(window: OpenWindow) -> None:
    page = window().open("/")

    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_control_that_turns_a_name_around_is_shown_and_not_obeyed(window: OpenWindow) -> None:
    page = window().open("/")

    assert READ_AS_WRITTEN in names(page)
    page.get_by_role("link", name=READ_AS_WRITTEN).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(READ_AS_WRITTEN)
    expect(page).to_have_title(f"{READ_AS_WRITTEN} · Runwatch")


def test_a_project_whose_name_holds_such_a_control_is_chosen_by_it(
    window: OpenWindow, sender: Sender
) -> None:
    sender.open("in odd hands", project="odd\u202etcejorp")
    page = window().open("/")

    page.get_by_label("Project").select_option(label="odd[U+202E]tcejorp")

    expect(page.locator("#fleet td.name a")).to_have_text(["in odd hands"])


def test_what_is_typed_narrows_the_list_without_leaving_the_page(window: OpenWindow) -> None:
    page = window().open("/")

    page.keyboard.press("/")
    page.keyboard.type("gpt ada")

    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-trains"])
    expect(page).to_have_url(re.compile(r"search=gpt\+ada"))
    page.get_by_role("searchbox").fill("nothing has this name")
    expect(page.get_by_text("No run matches this.")).to_be_visible()
    page.get_by_role("link", name="Show all runs").click()
    expect(page.locator("tr[data-run]").nth(4)).to_be_visible()


def test_a_list_that_comes_late_is_not_put_over_a_newer_one(
    window: OpenWindow, sender: Sender
) -> None:
    visitor = window()
    page = visitor.open("/")
    expect(page.locator("#live")).to_have_text("Live")
    line = Line(page)
    line.hold(LIST)
    sender.open("stirs the list")
    line.wait()
    page.get_by_role("searchbox").fill("gpt ada")
    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-trains"])

    with page.expect_response(LIST):
        line.mend(LIST)
    visitor.let_it_draw()

    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-trains"])


def test_groups_projects_and_order_choose_what_is_listed(window: OpenWindow) -> None:
    page = window().open("/")

    page.locator(".groups").get_by_role("link", name="Ended").click()
    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-done"])
    page.locator(".groups").get_by_role("link", name="All", exact=False).first.click()
    expect(page.get_by_role("link", name=LONG)).to_be_visible()  # else it is chosen on the old page
    page.wait_for_load_state()  # from here on it is heard
    page.get_by_label("Project").select_option("speech")
    page.get_by_label("Order").select_option("name")
    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-done", "gpt-trains"])


def test_the_runs_of_a_group_are_shown_by_its_name(window: OpenWindow, sender: Sender) -> None:
    for seed in (1, 2):
        sender.open(f"seed {seed}", project="seeds", group="lr 3e-4")
    page = window().open("/?search=seed")

    page.locator("tr[data-run]").first.get_by_role("link", name="lr 3e-4").click()
    expect(page).to_have_url(re.compile(r"run_group=lr\+3e-4"))
    expect(page.get_by_label("Group", exact=True)).to_have_value("lr 3e-4")
    expect(page.locator("#fleet td.name > a")).to_have_text(["seed 2", "seed 1"])
    page.wait_for_load_state()  # from here on it is heard
    page.get_by_label("Group", exact=True).select_option("")
    page.get_by_role("searchbox").fill("gpt")

    expect(page.locator("#fleet td.name > a")).to_have_text(["gpt-trains", "gpt-done"])
    page.get_by_role("searchbox").fill("")
    page.get_by_label("Group", exact=True).select_option("lr 3e-4")
    expect(page.locator("#fleet td.name > a")).to_have_text(["seed 2", "seed 1"])


def test_a_new_run_and_its_steps_appear_by_themselves(window: OpenWindow, sender: Sender) -> None:
    page = window().open("/?search=newcomer")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.get_by_text("No run matches this.")).to_be_visible()

    stream = Stream(sender, sender.open("newcomer"))
    stream.send(0, curve(0, 50))
    row = page.locator("tr[data-run]")
    expect(row.locator("td.step")).to_have_text("49")
    expect(row.locator("svg.spark")).to_be_visible()
    stream.send(50, {"loss": np.full(10, np.nan)})

    expect(row.locator("td.step")).to_have_text("59")
    expect(row.locator(".severity-critical")).to_be_visible()


def test_polling_stands_in_where_the_stream_does_not_come_through(
    window: OpenWindow, sender: Sender
) -> None:
    visitor = window()
    visitor.page.route("**/fleet/stream", lambda route: route.fulfill(status=204))
    page = visitor.open("/?search=latecomer")
    expect(page.locator("#live")).to_have_text("Every 5 s")

    sender.open("latecomer")

    expect(page.locator("#fleet td.name a")).to_have_text(["latecomer"])


def test_a_service_that_is_away_is_not_told_as_one_that_is_asked(window: OpenWindow) -> None:
    visitor = window()
    visitor.foreseen = ("Failed to load resource",)
    page = visitor.open("/")
    expect(page.locator("#live")).to_have_text("Live")

    visitor.context.set_offline(True)
    visitor.page.route("**/fleet/stream", lambda route: route.abort())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#live")).to_have_text("No answer")
    expect(page.locator("#fault")).to_have_text("The service cannot be reached. Is it running?")

    visitor.page.unroute("**/fleet/stream")
    visitor.context.set_offline(False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#fault")).to_be_hidden()


def test_two_chosen_runs_lead_to_their_comparison(window: OpenWindow) -> None:
    page = window().open("/?search=gpt")

    page.get_by_label("Compare gpt-trains").check()
    page.get_by_label("Compare gpt-done").check()
    page.get_by_role("link", name="Compare the two").click()

    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    expect(page.locator("#charts .chart").first).to_have_attribute("data-drawn", "0-199")


def test_what_is_chosen_to_be_compared_stays_in_sight_and_a_third_takes_the_first_ones_place(
    window: OpenWindow,
) -> None:
    visitor = window(viewport={"width": 1360, "height": 420})
    page = visitor.open("/")
    boxes = page.locator("input[name=compare]")
    told = page.locator("#picked")

    boxes.nth(4).check()
    expect(told).to_contain_text("choose a second run")
    expect(told).to_be_in_viewport()
    boxes.nth(3).check()
    boxes.nth(2).check()
    visitor.shoot("runs-picked")
    expect(boxes.nth(4)).not_to_be_checked()
    expect(page.get_by_role("link", name="Compare the two")).to_be_in_viewport(ratio=1)

    page.get_by_role("button", name="Choose none").click()
    expect(told).to_be_hidden()
    expect(page.locator("input[name=compare]:checked")).to_have_count(0)


def test_the_list_says_how_many_runs_there_are_of_the_kind_that_is_shown(
    window: OpenWindow,
) -> None:
    page = window().open("/?group=ended")

    expect(page.locator(".pages")).to_contain_text("1 to 1 of 1")


def test_a_key_of_a_project_sees_its_runs_alone(window: OpenWindow, sender: Sender) -> None:
    key = sender.ask("POST", "/keys", {"name": "t", "scopes": ["read"], "project": "speech"})["key"]

    page = window(key=key).open("/")

    expect(page.locator("#fleet td.name a")).to_have_text(["gpt-trains", "gpt-done"])


def test_the_list_is_readable_in_the_dark_and_on_a_phone(window: OpenWindow) -> None:
    dark = window(theme="dark")
    expect(dark.open("/").locator("svg.spark").first).to_be_visible()
    dark.shoot("runs-dark")
    phone = window(viewport=PHONE)
    page = phone.open("/")
    broken = page.locator("tr[data-run]", has_text=HOSTILE)  # others may be in trouble by now
    expect(broken.locator(".loss-now")).to_have_text("NaN")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    phone.shoot("runs-phone")
