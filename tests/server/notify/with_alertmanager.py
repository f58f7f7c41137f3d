"""A service that tells a real Alertmanager, whose webhook leads to a sink."""

import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ports import reserved_port
from tests.server.harness import Api, HandClock, frame, serve
from tests.server.notify.alertmanager_process import AlertmanagerProcess
from tests.server.notify.sink import Sink

from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock


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
    process = AlertmanagerProcess(tmp_path, reserved_port(), f"{sink.url}/webhook")
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


async def break_run(api: Api) -> RunId:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0, math.nan]))
    return run_id


async def heal_run(api: Api, run_id: RunId) -> None:
    await api.post(run_id, frame(2, [2.0] * 60, first_step=2))
