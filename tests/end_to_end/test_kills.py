"""A service that is killed again and again in the middle of a run changes nothing about it."""

from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import BY_THE_CLOCK, RealService
from tests.end_to_end.trainer import Trainer, watched_by
from tests.waiting import until

pytestmark = pytest.mark.heavy

STEPS = 900
FAULTS = ("--fault-at", "400", "--fault-at", "700", "--fault-factor", "300")


def test_five_kills_lose_no_step_and_change_no_alert(tmp_path: Path, service: RealService) -> None:
    service.start()
    calm = watched_by(service, number=1)
    losses = Trainer(tmp_path / "calm", *FAULTS, environment=calm, steps=STEPS).finish()
    rough = watched_by(service, number=2)
    job = Trainer(tmp_path / "rough", *FAULTS, environment=rough, steps=STEPS)
    for killing in range(5):
        job.wait_for_steps(150 + 130 * killing)
        service.kill()
        service.start()

    assert job.finish() == losses
    assert stored_losses(service, rough) == stored_losses(service, calm)
    assert alerts(service, rough) == alerts(service, calm) != []


def stored_losses(service: RealService, environment: dict[str, str]) -> list[tuple[int, Any]]:
    run_id = environment["RUNWATCH_RUN_ID"]
    series = service.ask("GET", f"/runs/{run_id}/series?metric=loss&points=10000")
    stored = list(zip(series["steps"], series["values"], strict=True))
    assert [step for step, _ in stored] == list(range(STEPS))
    return stored


def alerts(service: RealService, environment: dict[str, str]) -> list[dict[str, Any]]:
    """What makes an alert the same alert: no id, no time of day."""
    facts = (
        *("rule", "severity", "labels", "state", "segment", "onset_step", "firing_step"),
        *("resolved_step", "first_layer", "worst_layer", "layers", "summary"),
    )
    run_id = environment["RUNWATCH_RUN_ID"]
    until(lambda: is_over(service.judged_alerts(run_id)))  # a run's end takes seconds to end them
    found = service.judged_alerts(run_id)
    return sorted(
        (
            {fact: alert[fact] for fact in facts}
            for alert in found
            if alert["rule"] not in BY_THE_CLOCK
        ),
        key=lambda alert: (alert["onset_step"], alert["rule"]),
    )


def is_over(found: list[Any]) -> bool:
    return all(alert["state"] in ("inactive", "resolved") for alert in found)
