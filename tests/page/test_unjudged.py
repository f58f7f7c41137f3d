"""A run whose steps were stored and not judged: its page does not say that all was well."""

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.judging_processes import judging_processes
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """One whose judging can be stopped for a while."""
    environment = NOBODY_IS_MISSED | {"RUNWATCH_JUDGE_PROCESSES": "1"}
    with RealService(tmp_path_factory.mktemp("service"), environment=environment) as running:
        yield running


def test_a_run_that_ended_before_it_was_judged_says_so_until_its_alert_is_there(
    window: OpenWindow, service: RealService
) -> None:
    first = SentRun(service, "starts the process that judges")
    first.send([2.0])
    service.judged_alerts(first.id)
    visitor = window()  # first: what stands still for a minute is replaced
    (judge,) = judging_processes(service.pid)
    os.kill(judge, signal.SIGSTOP)
    try:
        run = SentRun(service, "ended early")
        run.send([2.0] * 20 + ["NaN"] * 3)
        closed = {"status": "finished", "reason": ""}
        service.ask("POST", f"/runs/{run.id}/attempts/1/close", closed)
        visitor.foreseen = ("Failed to load resource",)
        alerts = visitor.open(f"/runs/{run.id}").locator("#alerts")
        expect(alerts).to_contain_text("are not judged yet: alerts may follow")
        expect(alerts).not_to_contain_text("No alert was open")
        visitor.shoot("run-unjudged")
        visitor.context.set_offline(True)  # for a while, after which the page asks again
        expect(visitor.page.locator("#at")).to_contain_text("The service cannot be reached")
        visitor.context.set_offline(False)
    finally:
        os.kill(judge, signal.SIGCONT)

    expect(alerts.get_by_role("link", name="NonFinite")).to_be_visible()
    expect(alerts).not_to_contain_text("not judged yet")
