"""The main job, once round: a run goes wrong, and is trained on as if it had not."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import ENDLESS, Trainer, unwatched, watched_by
from tests.waiting import until

pytestmark = pytest.mark.heavy

FAULT_STEP = 150


@dataclass(frozen=True)
class FaultyRun:
    """A run whose gradients were NaN at one step, under the policy `auto`."""

    service: RealService
    run_id: str
    trained: list[tuple[int, str]]
    clean: list[tuple[int, str]]
    """What the same program trains without the fault, and without the hook, in as many steps."""

    def ask(self, path: str) -> Any:
        return self.service.ask("GET", path)

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.clean]


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyRun]:
    """It is stopped once it has recovered."""
    folder = tmp_path_factory.mktemp("recovery")
    with RealService(folder / "service") as service:
        environment = watched_by(service, number=1, policy="auto")
        run_id = environment["RUNWATCH_RUN_ID"]
        fault = ("--fault-at", str(FAULT_STEP))
        with Trainer(folder / "job", *fault, environment=environment, steps=ENDLESS) as job:
            until(lambda: card(service, run_id).get("recovery") == "recovered")
            service.ask("POST", f"/runs/{run_id}/commands", {"action": {"kind": "stop"}})
            trained = job.finish()
        clean = unwatched(folder / "clean", num_steps=trained[-1][0] + 1)
        service.judged_alerts(run_id)
        yield FaultyRun(service, run_id, trained, clean)


def card(service: RealService, run_id: str) -> dict[str, Any]:
    """Of the alert that tells of the fault; nothing while there is none."""
    alerts = service.ask("GET", f"/alerts?run_id={run_id}&rule=NonFinite")["alerts"]
    if not alerts:
        return {}
    (alert,) = alerts
    found: dict[str, Any] = service.ask("GET", f"/alerts/{alert['id']}")
    return found


def test_after_a_rollback_the_run_is_the_clean_one_to_the_bit(faulty_run: FaultyRun) -> None:
    assert len(faulty_run.trained) > len(faulty_run.steps)  # some steps were trained twice
    assert sorted(dict(faulty_run.trained).items()) == faulty_run.clean


def test_the_service_saw_it_ordered_a_rollback_and_tells_the_story(faulty_run: FaultyRun) -> None:
    alert = card(faulty_run.service, faulty_run.run_id)
    commands = faulty_run.ask(f"/runs/{faulty_run.run_id}/commands")["commands"]
    (command,) = (one for one in commands if one["automatic"])

    assert (alert["onset_step"], alert["firing_step"]) == (FAULT_STEP, FAULT_STEP)
    assert (command["action"]["kind"], command["state"]) == ("rollback", "applied")
    assert command["detail"]["to_step"] < FAULT_STEP
    assert alert["recovery"] == "recovered"
    assert faulty_run.ask(f"/runs/{faulty_run.run_id}")["state"] == "stopped"


def test_series_show_the_new_segment_and_the_old_one_on_request(faulty_run: FaultyRun) -> None:
    path = f"/runs/{faulty_run.run_id}/series?metric=loss&points=10000"

    history = faulty_run.ask(path)
    old = faulty_run.ask(f"{path}&attempt=1&segment=0")

    assert history["steps"] == faulty_run.steps == list(range(len(faulty_run.clean)))
    assert history["values"] == pytest.approx(numbers(faulty_run.clean))
    num_twice = len(faulty_run.trained) - len(faulty_run.steps)
    assert len(old["steps"]) == num_twice + rolled_back_to(faulty_run)
    assert old["values"][: FAULT_STEP + 1] == history["values"][: FAULT_STEP + 1]
    assert old["values"][FAULT_STEP + 1 :] == ["NaN"] * (len(old["steps"]) - FAULT_STEP - 1)


def rolled_back_to(faulty_run: FaultyRun) -> int:
    """The first step that was trained again."""
    steps = [step for step, _ in faulty_run.trained]
    return next(after for before, after in pairwise(steps) if after <= before)


def numbers(losses: list[tuple[int, str]]) -> list[float]:
    return [float.fromhex(loss) for _, loss in losses]
