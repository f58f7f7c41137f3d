"""What Alertmanager is sent of a trouble that comes and goes: one alert that goes on."""

from datetime import datetime
from typing import Any

import pytest
from tests.server.harness import Api, HandClock
from tests.server.notify.sink import Sink
from tests.server.notify.trainer import Trainer, new_trainer
from tests.waiting import until_so

from runwatch_server.notify.posting import RESEND_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def receivers(sink: Sink) -> dict[str, Any]:
    return {"name": "tests", "alertmanager": {"urls": [sink.url]}}


@pytest.fixture
async def trainer(told: Api, hand_clock: HandClock) -> Trainer:
    return await new_trainer(told, hand_clock)


def sent(sink: Sink) -> list[Any]:
    return [
        alert for body in sink.bodies for alert in body if alert["labels"]["alertname"] == "TooHigh"
    ]


def is_over(alert: Any, clock: HandClock) -> bool:
    return datetime.fromisoformat(alert["endsAt"]).timestamp() < clock.now + 1.0


async def until_sent(sink: Sink, num_times: int) -> None:
    await until_so(lambda: sent(sink)[-1]["annotations"].get("times", "1") == str(num_times))


async def test_one_alert_goes_on_until_its_end_is_told(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    await trainer.break_down()
    await until_so(lambda: bool(sent(sink)))
    await trainer.recover()
    await until_so(lambda: is_over(sent(sink)[-1], hand_clock))
    before = len(sent(sink))
    for times in (2, 3):
        await trainer.break_down()
        await until_sent(sink, times)
        await trainer.recover()
        hand_clock.now += RESEND_S + 1
    await until_so(lambda: len(sent(sink)) >= before + 3)
    assert not any(is_over(alert, hand_clock) for alert in sent(sink)[before:])

    await trainer.recover(600)
    await until_so(lambda: is_over(sent(sink)[-1], hand_clock))
    assert len({tuple(alert["labels"].items()) for alert in sent(sink)}) == 1


async def test_no_end_is_owed_of_times_that_others_have_followed(
    trainer: Trainer, sink: Sink, hand_clock: HandClock
) -> None:
    """Who removes a run waits for what is owed."""
    for times in (1, 2, 3):
        await trainer.break_down()
        await until_so(lambda: bool(sent(sink)))
        await until_sent(sink, times)
        await trainer.recover()
    path = f"/runs/{trainer.run_id}"
    await trainer.told.json("POST", f"{path}/attempts/1/close", json={"status": "finished"})
    await until_so(lambda: is_over(sent(sink)[-1], hand_clock))

    assert (await trainer.told.call("DELETE", path)).status_code == 204
    assert is_over(sent(sink)[-1], hand_clock)
