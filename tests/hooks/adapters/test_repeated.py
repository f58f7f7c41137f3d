"""The Trainer's callback in training after training: each goes on from what it was given itself."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.adapters.program_told import told_by
from tests.hooks.uplink.stub_service import StubService

from runwatch.commands import Command, LowerLr
from runwatch.vocabulary import CommandId

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("repeated_trainer.py")


@dataclass(frozen=True)
class Repeated:
    service: StubService
    told: dict[str, Any]
    """What the program knows of its trainings."""
    log: str


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Repeated:
    folder = tmp_path_factory.mktemp("here")
    service = StubService()
    service.send(Command(CommandId("c1"), LowerLr(0.5), 1, time.time() + 3600))
    told_by(PROGRAM, folder, service, framework="hf_trainer")
    told = json.loads((folder / "trainings.json").read_text())
    return Repeated(service, told, (folder / "log.txt").read_text())


def test_a_training_from_the_start_is_a_run_of_its_own_at_its_own_rate(repeated: Repeated) -> None:
    (lowered, second) = repeated.told["from the start"]

    assert lowered[2] == 0.5
    assert second[1:] == [2, 1.0]
    assert second[0] != lowered[0]


def test_each_of_two_callbacks_goes_on_with_its_own_run(repeated: Repeated) -> None:
    (first, resumed) = repeated.told["two callbacks"]

    assert (first[1], resumed) == (2, [first[0], 3, 1.0])


def test_a_prediction_within_the_training_is_over_once_it_is_done(repeated: Repeated) -> None:
    phases = [
        (event.detail["edge"], event.step)
        for frame in repeated.service.frames.values()
        for event in frame.events
        if event.kind == "phase" and event.detail["phase"] == "eval"
    ]

    assert set(phases) == {("begin", 0), ("end", 0)}


def test_a_callback_made_of_a_checkpoint_has_what_no_checkpoint_holds(repeated: Repeated) -> None:
    (first, resumed) = repeated.told["restored"]

    assert resumed == [[first[0][0], 3, 1.0], ["checkpoints", "keep", "spool"]]
    assert repeated.log.count("restored from a checkpoint") == 1
    assert "continues without spool, url, which the Trainer does not save" in repeated.log


def test_a_run_is_named_for_the_folder_that_its_trainer_writes_to(repeated: Repeated) -> None:
    names = {run.name for run in repeated.service.runs.values()}

    assert names == {"repeated", "first", "second", "here0"}
