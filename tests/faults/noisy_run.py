"""A run with spikes and stretches that are not finite, and what is to come of it however often
those who look after it are disturbed."""

import math
import random
from typing import Any, Final, Protocol

from tests.end_to_end.real_service import RealService
from tests.faults.sender import Sender
from tests.waiting import until

NUM_FRAMES: Final = 260
STEPS_A_FRAME: Final = 2
FAR: Final = 2000
"""Steps after which nothing that was before is held against a run."""


class AnySender(Protocol):
    """Of one run, to one service or to several."""

    run_id: str

    def send_until_acknowledged(self, seq: int, losses: list[float], first_step: int) -> None: ...


def losses_of(seq: int) -> list[float]:
    """A noisy, falling loss with spikes and stretches that are not finite."""
    noise = random.Random(seq)
    losses = [3.0 / (1 + seq / 200) + 0.02 * noise.random() for _ in range(STEPS_A_FRAME)]
    if seq % 80 == 60:
        losses = [loss * 30 for loss in losses]
    if seq % 100 in (30, 31):
        losses[-1] = math.nan
    return losses


def send_all(sender: AnySender) -> None:
    for seq in range(1, NUM_FRAMES + 1):
        first_step = (seq - 1) * STEPS_A_FRAME
        sender.send_until_acknowledged(seq, losses_of(seq), first_step)


def judged(service: RealService, sender: AnySender) -> list[Any]:
    """What the run's alerts and commands say, once the last frame has been judged. But for that of
    a step that is overdue: whether the next one is a minute away is the machine's doing."""
    # Far behind all others: a NaN that comes back soon is the same alert, kept for longer.
    first_step = NUM_FRAMES * STEPS_A_FRAME + FAR
    sender.send_until_acknowledged(NUM_FRAMES + 1, [1.0, math.nan], first_step)

    def all_told() -> list[Any]:
        told = service.ask("GET", f"/alerts?run_id={sender.run_id}&limit=500")["alerts"]
        found = [one for one in told if one["rule"] != "StepOverdue"]
        return found if any(one["firing_step"] == first_step + 1 for one in found) else []

    alerts = until(all_told)
    facts = ("rule", "state", "severity", "onset_step", "firing_step", "resolved_step", "summary")
    told = [[alert[fact] for fact in facts] for alert in alerts]
    commands = service.ask("GET", f"/runs/{sender.run_id}/commands?limit=500")["commands"]
    return [sorted(told, key=str), sorted(str(command["action"]) for command in commands)]


def open_run(service: RealService, key: str, policy: str) -> Sender:
    sender = Sender.open(service.url, key)
    service.ask("PATCH", f"/runs/{sender.run_id}", {"policy": policy})
    return sender
