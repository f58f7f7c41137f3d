"""Killing the service changes nothing in its alerts, nor in what they ordered."""

import math
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.sender import Sender

pytestmark = pytest.mark.slow

NUM_FRAMES = 260
STEPS_A_FRAME = 2


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    made = RealService(tmp_path / "service")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def losses_of(seq: int) -> list[float]:
    """A noisy, falling loss with spikes and stretches that are not finite."""
    noise = random.Random(seq)
    losses = [3.0 / (1 + seq / 200) + 0.02 * noise.random() for _ in range(STEPS_A_FRAME)]
    if seq % 80 == 60:
        losses = [loss * 30 for loss in losses]
    if seq % 100 in (30, 31):
        losses[-1] = math.nan
    return losses


def send_all(sender: Sender) -> None:
    for seq in range(1, NUM_FRAMES + 1):
        first_step = (seq - 1) * STEPS_A_FRAME
        sender.send_until_acknowledged(seq, losses_of(seq), first_step)


def judged(service: RealService, sender: Sender) -> list[Any]:
    """What the run's alerts and commands say, once the last frame has been judged."""
    last_step = NUM_FRAMES * STEPS_A_FRAME - 1
    sender.send_until_acknowledged(NUM_FRAMES + 1, [math.nan], last_step + 1)
    deadline = time.monotonic() + 30
    while True:
        alerts = service.ask("GET", f"/alerts?run_id={sender.run_id}&limit=500")["alerts"]
        if any(alert["firing_step"] == last_step + 1 for alert in alerts):
            break
        assert time.monotonic() < deadline, alerts
        time.sleep(0.05)
    facts = ("rule", "state", "severity", "onset_step", "firing_step", "resolved_step", "summary")
    told = [[alert[fact] for fact in facts] for alert in alerts]
    commands = service.ask("GET", f"/runs/{sender.run_id}/commands?limit=500")["commands"]
    return [sorted(told, key=str), sorted(str(command["action"]) for command in commands)]


def open_run(service: RealService, key: str, policy: str) -> Sender:
    sender = Sender.open(service.url, key)
    service.ask("PATCH", f"/runs/{sender.run_id}", {"policy": policy})
    return sender


@pytest.mark.parametrize("policy", ["observe", "auto"])
def test_five_kills_in_a_run_change_nothing_in_its_alerts(
    service: RealService, policy: str
) -> None:
    key = service.create_key("ingest")
    undisturbed = open_run(service, key, policy)
    send_all(undisturbed)
    expected = judged(service, undisturbed)
    assert len(expected[0]) >= 5
    assert expected[1]

    disturbed = open_run(service, key, policy)
    sending = threading.Thread(target=send_all, args=(disturbed,))
    sending.start()
    chance = random.Random(5)
    for _ in range(5):
        time.sleep(chance.uniform(0.1, 0.4))
        service.kill()
        service.start()
    sending.join(120)
    assert not sending.is_alive()

    assert judged(service, disturbed) == expected
