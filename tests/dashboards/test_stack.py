"""The compose file's processes, started by hand: each finds the others, and a bad value arrives."""

import shutil
import subprocess
import sys
from typing import Any

import pytest
from tests.dashboards.stack import Stack, on_this_machine

from runwatch.vocabulary import RunId

pytestmark = [pytest.mark.heavy, on_this_machine]


def test_prometheus_scrapes_all_that_it_is_told_to(stack: Stack) -> None:
    def healths() -> dict[str, str]:
        targets = stack.get("prometheus", "/api/v1/targets")["data"]["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets}

    wanted = dict.fromkeys(("runwatch", "prometheus", "alertmanager"), "up")
    stack.until(lambda: healths() == wanted, "the targets")


def test_prometheus_tells_its_alerts_to_alertmanager(stack: Stack) -> None:
    def found() -> list[str]:
        active = stack.get("prometheus", "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        return [one["url"] for one in active]

    stack.until(
        lambda: found() == [f"{stack.urls['alertmanager']}/api/v2/alerts"], "the alertmanager"
    )


def alerts_of(stack: Stack) -> list[Any]:
    found: list[Any] = stack.get("alertmanager", "/api/v2/alerts")
    return found


def test_a_run_that_breaks_and_the_heartbeat_reach_alertmanager(
    stack: Stack, broken_run: RunId
) -> None:
    def names() -> set[tuple[str, str]]:
        labels = [alert["labels"] for alert in alerts_of(stack)]
        return {(label["alertname"], label.get("run_id", "")) for label in labels}

    stack.until(lambda: {("NonFinite", broken_run), ("Watchdog", "")} <= names(), "the alerts")

    (alert,) = (
        one
        for one in alerts_of(stack)
        if (one["labels"]["alertname"], one["labels"].get("run_id")) == ("NonFinite", broken_run)
    )
    assert [receiver["name"] for receiver in alert["receivers"]] == ["pager"]
    assert alert["labels"]["watchdog"] == "compose"


def test_the_health_check_of_the_service_passes_and_fails(stack: Stack) -> None:
    command = stack.health_check("runwatch")
    command[0] = sys.executable

    well = subprocess.run(command, capture_output=True, check=False)
    command[-1] = command[-1].replace("/readyz", "/nothing")
    ill = subprocess.run(command, capture_output=True, check=False)

    assert well.returncode == 0, well.stderr
    assert ill.returncode != 0


@pytest.mark.skipif(shutil.which("wget") is None, reason="no wget on this machine")
@pytest.mark.parametrize("name", ["alertmanager"])
def test_the_other_health_checks_pass(stack: Stack, name: str) -> None:
    checked = subprocess.run(stack.health_check(name), capture_output=True, check=False)

    assert checked.returncode == 0, checked.stderr
