"""Rules: the list, the editor that says what is wrong, trying them on runs of the past."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, send_healthy
from tests.page.sent_run import SentRun
from tests.page.visitor import PHONE

pytestmark = pytest.mark.heavy

RULE = """\
version: 1
groups:
- name: ours
  rules:
  - alert: LossAbove3
    when: loss > 3
    severity: info
"""


SPIKE_RULES = """\
version: 1
groups:
- name: ours
  rules:
  - alert: LossHigh
    when: loss > 1.2 * median(loss, 64)
    for: {steps: 3}
    severity: warning
  - alert: NormHigh
    when: grad_norm > 1e6
  - alert: LayerHigh
    scope: layer
    when: grad_norm > 1.9 * median(grad_norm, 64)
    severity: info
"""

_SPANS = """plot => plot.layout.shapes.filter((one) => one.type === 'rect')
  .map((one) => [one.x0, one.x1])"""
_LINES = """plot => plot.layout.shapes.filter((one) => one.type === 'line')
  .map((one) => [one.x0, one.line.dash])"""


@pytest.fixture(scope="module")
def jumpy_run(service: RealService) -> SentRun:
    run = SentRun(service, "jumpy")
    run.send([2.0] * 40 + [5.0] * 3 + [2.0] * 40)
    return run


def write(page: Page, text: str) -> None:
    page.get_by_label("Rule file").fill(text)


def test_built_in_rules_are_listed_found_and_shown(window: OpenWindow) -> None:
    visitor = window()
    page = visitor.open("/rules")
    visitor.shoot("rules")

    page.get_by_label("Find a rule").fill("zero_grad is missing")
    expect(page.get_by_role("link", name="GradientsNotCleared")).to_be_visible()
    expect(page.get_by_role("link", name="GradientSpike")).to_be_hidden()

    page.get_by_label("Find a rule").fill("gradientspike")
    expect(page.get_by_role("row", name="NonFinite")).to_be_hidden()
    page.get_by_role("link", name="GradientSpike").click()

    expect(page.get_by_text("five times its median, more than")).to_be_visible()
    expect(page.get_by_label("Rule file")).to_have_value(re.compile("alert: GradientSpike"))
    expect(page.get_by_text("Good: GradientSpike")).to_be_visible()


def test_a_fault_is_told_at_its_line_and_column_as_one_types(window: OpenWindow) -> None:
    visitor = window()
    page = visitor.open("/rules/new")

    write(page, RULE.replace("loss > 3", "loss > medain(loss, 8)"))
    fault = page.locator("#verdict button")
    expect(fault).to_contain_text("6:18")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    visitor.shoot("rule-fault")
    fault.click()
    assert page.evaluate("getSelection().toString()") == "medain"

    write(page, RULE)
    expect(page.get_by_text("Good: LossAbove3")).to_be_visible()


def test_a_rule_is_tried_saved_changed_and_deleted(
    window: OpenWindow, service: RealService, jumpy_run: SentRun
) -> None:
    visitor = window()
    page = visitor.open("/rules/new")
    write(page, RULE)

    page.get_by_label("Run").select_option(jumpy_run.id)
    page.get_by_role("button", name="Try it").click()
    row = page.locator("#would-be tbody tr")
    expect(row).to_contain_text("LossAbove3")
    expect(row).to_contain_text("40")

    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="LossAbove3")).to_be_visible()
    page.wait_for_load_state()  # from here on its buttons are listened to
    write(page, RULE.replace("> 3", "> 4"))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Version 2")).to_be_visible()
    page.wait_for_load_state()
    page.get_by_text("Version 2").click()
    expect(page.locator(".diff-in")).to_contain_text("loss > 4")
    visitor.shoot("rule-history")

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really delete").click()
    page.wait_for_url("**/rules")
    expect(page.get_by_text("LossAbove3")).to_have_count(0)


def test_would_be_alerts_are_drawn_on_the_curves_that_the_rules_judge(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_healthy(Sender(service.url, service.admin_key), "with a spike")
    visitor = window()
    page = visitor.open("/rules/new")
    write(page, SPIKE_RULES)
    expect(page.get_by_text("Good: LossHigh, NormHigh, LayerHigh")).to_be_visible()

    page.get_by_label("Run").select_option(run_id)
    page.get_by_role("button", name="Try it").click()
    card = page.get_by_role("region", name="with a spike")
    loss = card.locator(".chart", has=page.get_by_role("heading", name="loss", exact=True))
    loss.scroll_into_view_if_needed()
    expect(loss).to_have_attribute("data-drawn", "0-2999")
    assert loss.locator(".canvas").evaluate(_SPANS) == [[1603, 1632]]
    lines = loss.locator(".canvas").evaluate(_LINES)
    assert lines == [[1600, "dot"], [1603, "solid"]]
    expect(card.locator(".lanes .bar.warning title")).to_contain_text("LossHigh since step")
    expect(card.locator(".chart h3").first).to_contain_text("grad_norm of blocks.")
    visitor.shoot("rule-backtest")

    at_onset = card.get_by_role("row", name="LossHigh").get_by_role("button").first
    at_onset.focus()
    page.keyboard.press("Enter")

    expect(loss).to_have_attribute("data-drawn", "1500-1700")
    expect(loss.locator(".cursor.chosen")).to_be_visible()


def test_a_rule_is_tried_on_the_newest_runs_one_after_the_other(
    window: OpenWindow, service: RealService, jumpy_run: SentRun
) -> None:
    SentRun(service, "calm").send([2.0] * 50)
    page = window().open("/rules/new")
    write(page, RULE)

    page.get_by_label("Run").select_option("newest")
    page.get_by_role("button", name="Try it").click()

    calm = page.get_by_role("region", name="calm")
    expect(calm).to_contain_text("Silent over 50 steps")
    expect(calm.locator(".chart")).to_have_count(0)
    expect(page.get_by_role("region", name="jumpy")).to_contain_text("1 alert in 83 steps")


def test_a_rule_on_trial_is_marked_and_so_are_its_alerts(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window()
    page = visitor.open("/rules/new")
    write(page, RULE.replace("LossAbove3", "OnTrial") + "    shadow: true\n")
    expect(page.get_by_text("Good: OnTrial")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="OnTrial")).to_be_visible()
    page.goto("/rules")
    expect(page.get_by_role("row", name="OnTrial").get_by_text("shadow")).to_be_visible()

    run = SentRun(service, "judged on trial")
    run.send([2.0] * 10 + [5.0] * 5)
    alert_id = run.wait_for_alert("OnTrial")

    page.goto("/alerts?rule=OnTrial")
    row = page.get_by_role("row", name="judged on trial")
    expect(row.get_by_text("shadow", exact=True)).to_be_visible()
    visitor.shoot("alerts-shadow")
    page.goto(f"/alerts/{alert_id}")
    expect(page.get_by_text("shadow: nobody is told")).to_be_visible()
    page.goto(f"/runs/{run.id}")
    expect(page.get_by_text("No alert fires.")).to_be_visible()


def test_a_built_in_rule_is_switched_off_and_on_again(window: OpenWindow) -> None:
    page = window().open("/rules/builtin:LossRising")

    page.get_by_role("button", name="Switch the built-in one off").click()
    expect(page.get_by_role("button", name="Switch on")).to_be_visible()
    page.goto("/rules")
    expect(page.get_by_text("replaced")).to_be_visible()


def test_a_reader_may_try_rules_and_save_none(window: OpenWindow, service: RealService) -> None:
    visitor = window(key=service.create_key("read"), theme="dark", viewport=PHONE)
    page = visitor.open("/rules/new")
    write(page, RULE)

    expect(page.get_by_text("Good: LossAbove3")).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    visitor.shoot("rule-dark-phone")
    visitor.open("/rules")
    visitor.shoot("rules-dark-phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
