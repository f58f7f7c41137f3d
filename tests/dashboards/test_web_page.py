"""A web page in the browser of somebody on the machine of the compose file: Alertmanager has no
password and answers any page (CORS `*`), so a page that reaches it mutes whatever it likes."""

from typing import Any, Final

import pytest
import yaml
from playwright.sync_api import Browser
from tests.dashboards.compose import filled_in
from tests.dashboards.stack import RULES, Stack, on_this_machine
from tests.page.conftest import browser
from tests.server.notify.sink import running_sink

__all__ = ["browser"]

pytestmark = [pytest.mark.heavy, on_this_machine]

_MUTE: Final = """async at => {
    const body = JSON.stringify({
        matchers: [{name: "alertname", value: ".+", isRegex: true, isEqual: true}],
        startsAt: new Date().toISOString(), endsAt: new Date(Date.now() + 3e10).toISOString(),
        createdBy: "nobody", comment: "maintenance",
    });
    const headers = {"content-type": "application/json"};
    try {
        return (await fetch(at + "/api/v2/silences", {method: "POST", headers, body})).status;
    } catch (error) {
        return String(error);
    }
}"""


def muted_by_a_page(browser: Browser, address: str) -> Any:
    """What a page of another site is answered when it mutes all alerts at an address."""
    with running_sink() as site:
        page = browser.new_page()
        page.goto(f"http://evil.localhost:{site.port}/")
        answer = page.evaluate(_MUTE, address)
        page.close()
    return answer


def silences(stack: Stack) -> list[str]:
    found: list[Any] = stack.get("alertmanager", "/api/v2/silences")
    return [one["id"] for one in found if one["status"]["state"] == "active"]


def test_a_page_mutes_nothing_by_the_ports_that_are_published(
    browser: Browser, stack: Stack
) -> None:
    services = filled_in()["services"]
    published = [name for name in stack.urls if services[name].get("ports")]
    assert published

    answers = [muted_by_a_page(browser, stack.urls[name]) for name in published]

    assert silences(stack) == []
    assert answers == ["TypeError: Failed to fetch"] * len(published)


def test_prometheus_tells_that_somebody_muted_everything(browser: Browser, stack: Stack) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {rule.get("alert"): rule["expr"] for group in groups for rule in group["rules"]}
    expression = rules["RunwatchAlertsMuted"]
    stack.until(lambda: stack.has('alertmanager_alerts{state="active"} > 0'), "the heartbeat")
    assert not stack.has(expression)

    assert muted_by_a_page(browser, stack.urls["alertmanager"]) == 200

    (silence,) = silences(stack)
    stack.until(lambda: stack.has(expression), expression)
    stack.until(lambda: stack.has('ALERTS{alertname="RunwatchAlertsMuted"}'), "the alert")
    stack.expire(silence)
    stack.until(lambda: not stack.has(expression), "the end of it")
