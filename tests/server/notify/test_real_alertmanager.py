"""From a bad value through a real Alertmanager to its webhook, and the end of it too."""

import math
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.server.harness import Api, HandClock, frame, serve
from tests.server.notify.alertmanager_process import PROGRAM, AlertmanagerProcess
from tests.server.notify.conftest import until
from tests.server.notify.sink import Sink

from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"no {PROGRAM} on this machine"),
]


@dataclass
class ShiftedClock(HandClock):
    """The real clocks; the monotonic one is put forward by the test, the wall clock never, since
    Alertmanager goes by its own."""

    now: float = 0.0

    def clock(self) -> Clock:
        return Clock(wall=time.time, monotonic=lambda: time.monotonic() + self.now)


@pytest.fixture
def shifted_clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def alertmanager(tmp_path: Path, sink: Sink) -> Iterator[AlertmanagerProcess]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    process = AlertmanagerProcess(tmp_path, port, f"{sink.url}/webhook")
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
async def told(
    tmp_path: Path, alertmanager: AlertmanagerProcess, shifted_clock: ShiftedClock
) -> AsyncIterator[Api]:
    config = {"name": "tests", "alertmanager": {"urls": [alertmanager.url]}}
    (tmp_path / "receivers.yaml").write_text(yaml.safe_dump(config))
    async with serve(tmp_path, clock=shifted_clock) as api:
        yield api


def told_of(sink: Sink, rule: str, status: str) -> list[Any]:
    return [
        alert
        for body in sink.bodies
        for alert in body["alerts"]
        if alert["labels"]["alertname"] == rule and alert["status"] == status
    ]


def runs_told_of(sink: Sink, status: str) -> set[str]:
    return {alert["labels"]["run_id"] for alert in told_of(sink, "NonFinite", status)}


async def break_run(api: Api) -> RunId:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0, math.nan]))
    return run_id


async def heal_run(api: Api, run_id: RunId) -> None:
    await api.post(run_id, frame(2, [2.0] * 60, first_step=2))


async def test_a_bad_value_reaches_the_webhook_and_so_does_its_end(told: Api, sink: Sink) -> None:
    run_id = await break_run(told)
    await until(lambda: bool(told_of(sink, "NonFinite", "firing")))
    await heal_run(told, run_id)
    await until(lambda: bool(told_of(sink, "NonFinite", "resolved")))

    (alert, *_) = told_of(sink, "NonFinite", "firing")
    assert alert["labels"]["run_id"] == run_id
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["onset_step"] == "1"


def test_the_example_of_a_configuration_is_valid() -> None:
    example = Path("dashboards/alertmanager.yml").absolute()
    checked = subprocess.run(["amtool", "check-config", example], capture_output=True, check=False)

    assert checked.returncode == 0, checked.stderr


async def test_the_heartbeat_always_fires(told: Api, sink: Sink) -> None:
    await until(lambda: bool(told_of(sink, "Watchdog", "firing")))

    assert told_of(sink, "Watchdog", "firing")[0]["labels"]["watchdog"] == "tests"


async def test_alertmanager_may_be_killed_and_come_back_knowing_nothing(
    told: Api, sink: Sink, alertmanager: AlertmanagerProcess, shifted_clock: ShiftedClock
) -> None:
    run_id = await break_run(told)
    await until(lambda: bool(told_of(sink, "NonFinite", "firing")))

    alertmanager.kill()
    shifted_clock.now += 61  # a re-send is due, and finds nobody
    second = await break_run(told)
    alertmanager.start()
    await until(lambda: len(runs_told_of(sink, "firing")) == 2, timeout_s=120)
    await heal_run(told, run_id)
    await heal_run(told, second)
    await until(lambda: len(runs_told_of(sink, "resolved")) == 2, timeout_s=120)


async def test_an_alert_that_ended_while_alertmanager_was_away_ends_there_too(
    told: Api, sink: Sink, alertmanager: AlertmanagerProcess, shifted_clock: ShiftedClock
) -> None:
    run_id = await break_run(told)
    await until(lambda: bool(told_of(sink, "NonFinite", "firing")))
    alertmanager.kill()
    await heal_run(told, run_id)
    await until(lambda: figure(told, alertmanager, "failed_total") > 0)
    sent = figure(told, alertmanager, "sent_total")
    alertmanager.start()

    # The end, and the heartbeat: whoever comes back may know nothing.
    await until(lambda: figure(told, alertmanager, "sent_total") == sent + 2, timeout_s=120)


def figure(api: Api, alertmanager: AlertmanagerProcess, name: str) -> float:
    labels = {"url": alertmanager.url}
    value = api.services.health.registry.get_sample_value(f"runwatch_alertmanager_{name}", labels)
    assert value is not None
    return value
