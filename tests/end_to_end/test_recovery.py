"""The main job, once round: a run goes wrong, and is trained on as if it had not."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import Trainer, unwatched, watched_by

pytestmark = pytest.mark.heavy

FAULT_STEP = 150
STEPS = 400


@dataclass(frozen=True)
class FaultyRun:
    """A run whose gradients were NaN at one step, under the policy `auto`."""

    service: RealService
    run_id: str
    trained: list[tuple[int, str]]
    clean: list[tuple[int, str]]
    """What the same program trains without the fault, and without the hook."""

    def ask(self, path: str) -> Any:
        return self.service.ask("GET", path)


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyRun]:
    folder = tmp_path_factory.mktemp("recovery")
    with RealService(folder / "service") as service:
        environment = watched_by(service, number=1, policy="auto")
        fault = ("--fault-at", str(FAULT_STEP))
        with Trainer(folder / "job", *fault, environment=environment, steps=STEPS) as job:
            clean = unwatched(folder / "clean", steps=STEPS)
            trained = job.finish()
        service.judged_alerts(environment["RUNWATCH_RUN_ID"])
        yield FaultyRun(service, environment["RUNWATCH_RUN_ID"], trained, clean)


def test_after_a_rollback_the_run_is_the_clean_one_to_the_bit(faulty_run: FaultyRun) -> None:
    assert len(faulty_run.trained) > STEPS  # some steps were trained twice
    assert sorted(dict(faulty_run.trained).items()) == faulty_run.clean


def test_the_service_saw_it_ordered_a_rollback_and_tells_the_story(faulty_run: FaultyRun) -> None:
    (alert,) = faulty_run.ask(f"/alerts?run_id={faulty_run.run_id}&rule=NonFinite")["alerts"]
    (command,) = faulty_run.ask(f"/runs/{faulty_run.run_id}/commands")["commands"]
    card = faulty_run.ask(f"/alerts/{alert['id']}")

    assert (alert["onset_step"], alert["firing_step"]) == (FAULT_STEP, FAULT_STEP)
    assert (command["action"]["kind"], command["state"]) == ("rollback", "applied")
    assert command["detail"]["to_step"] < FAULT_STEP
    assert card["recovery"] == "recovered"
    assert faulty_run.ask(f"/runs/{faulty_run.run_id}")["state"] == "finished"


def test_series_show_the_new_segment_and_the_old_one_on_request(faulty_run: FaultyRun) -> None:
    path = f"/runs/{faulty_run.run_id}/series?metric=loss&points=10000"

    history = faulty_run.ask(path)
    old = faulty_run.ask(f"{path}&attempt=1&segment=0")

    assert history["steps"] == list(range(STEPS))
    assert history["values"] == pytest.approx(numbers(faulty_run.clean))
    assert len(old["steps"]) == len(faulty_run.trained) - STEPS + rolled_back_to(faulty_run)
    assert old["values"][: FAULT_STEP + 1] == history["values"][: FAULT_STEP + 1]
    assert old["values"][FAULT_STEP + 1 :] == ["NaN"] * (len(old["steps"]) - FAULT_STEP - 1)


def rolled_back_to(faulty_run: FaultyRun) -> int:
    """The first step that was trained again."""
    steps = [step for step, _ in faulty_run.trained]
    return next(after for before, after in pairwise(steps) if after <= before)


def numbers(losses: list[tuple[int, str]]) -> list[float]:
    return [float.fromhex(loss) for _, loss in losses]
