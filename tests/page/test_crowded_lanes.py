"""Alerts that have to share a lane of the timeline are all named there."""

import re

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun
from tests.waiting import until

pytestmark = pytest.mark.heavy

NAMES = [f"Low{number}" for number in range(8)]
RULES = [{"alert": name, "severity": "info", "scope": "run", "when": "loss < 1"} for name in NAMES]


def test_all_alerts_of_a_shared_lane_are_named(window: OpenWindow, service: RealService) -> None:
    groups = [{"name": "crowd", "rules": RULES}]
    service.ask("POST", "/rules?project=crowd", {"version": 1, "groups": groups})
    run = SentRun(service, "crowded", project="crowd")
    run.send([2.0] * 20 + [0.5] * 20)
    asked = f"/alerts?run_id={run.id}&severity=info"
    until(lambda: len(service.ask("GET", asked)["alerts"]) == len(NAMES))
    lanes = window().open(f"/runs/{run.id}").locator("#timeline .lanes")

    shared = lanes.locator(".bar.info").last.locator("title")
    expect(lanes.locator(".bar.info")).to_have_count(len(NAMES))
    expect(shared).to_have_text(re.compile(r"(info: Low\d since step 20\. Low\d\s*){4}$"))
    expect(lanes.locator(".bar-label.info").last).to_have_text(re.compile(r"^(Low\d, ){3}Low\d$"))


def test_a_short_alert_at_the_beginning_is_named_behind_it(
    window: OpenWindow, service: RealService
) -> None:
    rule = {"alert": "ShortAndEarly", "severity": "info", "scope": "run", "when": "loss < 1"}
    groups = [{"name": "early", "rules": [rule]}]
    service.ask("POST", "/rules?project=early", {"version": 1, "groups": groups})
    run = SentRun(service, "early", project="early")
    run.send([2.0] * 2 + [0.5] * 2 + [2.0] * 400)
    asked = f"/alerts?run_id={run.id}&rule=ShortAndEarly&state=resolved"
    until(lambda: service.ask("GET", asked)["alerts"])
    lanes = window().open(f"/runs/{run.id}").locator("#timeline .lanes")

    expect(lanes.locator(".bar-label.info", has_text="ShortAndEarly")).to_be_visible()
