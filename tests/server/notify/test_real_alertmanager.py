"""From a bad value through a real Alertmanager to its webhook, and the end of it too."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.server.harness import Api
from tests.server.notify.alertmanager_process import PROGRAM, AlertmanagerProcess
from tests.server.notify.sink import Sink
from tests.server.notify.test_telling import until_alert
from tests.server.notify.with_alertmanager import (
    alertmanager,
    break_run,
    heal_run,
    shifted_clock,
    told,
    told_of,
)
from tests.waiting import until_so

__all__ = ["alertmanager", "shifted_clock", "told"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"no {PROGRAM} on this machine"),
]


async def test_a_bad_value_reaches_the_webhook_and_so_does_its_end(told: Api, sink: Sink) -> None:
    run_id = await break_run(told)
    await until_so(lambda: bool(told_of(sink, "NonFinite", "firing")))
    await heal_run(told, run_id)
    await until_so(lambda: bool(told_of(sink, "NonFinite", "resolved")))

    (alert, *_) = told_of(sink, "NonFinite", "firing")
    assert alert["labels"]["run_id"] == run_id
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["onset_step"] == "1"


def test_the_example_of_a_configuration_is_valid() -> None:
    example = Path("dashboards/alertmanager.yml").absolute()
    checked = subprocess.run(["amtool", "check-config", example], capture_output=True, check=False)

    assert checked.returncode == 0, checked.stderr


async def test_the_heartbeat_always_fires(told: Api, sink: Sink) -> None:
    await until_so(lambda: bool(told_of(sink, "Watchdog", "firing")))

    assert told_of(sink, "Watchdog", "firing")[0]["labels"]["watchdog"] == "tests"


async def test_an_alert_that_ended_while_alertmanager_was_away_ends_there_too(
    told: Api, sink: Sink, alertmanager: AlertmanagerProcess
) -> None:
    run_id = await break_run(told)
    await until_so(lambda: bool(told_of(sink, "NonFinite", "firing")))
    alertmanager.kill()
    await heal_run(told, run_id)
    await until_alert(told, run_id, "resolved")
    await until_so(lambda: figure(told, alertmanager, "failed_total") > 0)
    sent = figure(told, alertmanager, "sent_total")
    alertmanager.start()

    # The end, and the heartbeat: whoever comes back may know nothing.
    await until_so(lambda: figure(told, alertmanager, "sent_total") == sent + 2)


def figure(api: Api, alertmanager: AlertmanagerProcess, name: str) -> float:
    labels = {"url": alertmanager.url}
    value = api.services.metrics.registry.get_sample_value(f"runwatch_alertmanager_{name}", labels)
    assert value is not None
    return value
