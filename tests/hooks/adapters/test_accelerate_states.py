"""The folders that Accelerate saves, with the state of a watch or without, and who takes which."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.adapters.program_told import numbers, told_by
from tests.hooks.uplink.stub_service import StubService

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("accelerate_states.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def service(folder: Path) -> StubService:
    return told_by(PROGRAM, folder, framework="accelerate_loop")


@pytest.fixture
def told(folder: Path, service: StubService) -> dict[str, Any]:
    """What the program knows itself."""
    found: dict[str, Any] = json.loads((folder / "states.json").read_text())
    return found


def test_a_training_takes_folders_of_before_it_was_watched_and_of_when_it_was(
    told: dict[str, Any],
) -> None:
    assert told["unwatched"] == 5
    assert told["renamed"] == [5, 3]


def test_each_watch_of_one_accelerator_finds_its_own_state(told: dict[str, Any]) -> None:
    assert told["second"] == 4


def test_a_folder_of_an_earlier_version_is_gone_on_from(told: dict[str, Any]) -> None:
    assert told["earlier"] == [7, 6]
    assert told["later"] == ["custom_checkpoint_0.pkl"]


def test_a_damaged_state_is_in_nobodys_way(told: dict[str, Any]) -> None:
    assert told["damaged"] == [1, 1]


def test_the_metrics_of_batches_that_are_accumulated_are_in_their_row(service: StubService) -> None:
    assert numbers(service, "reward") == [0.5]
    assert numbers(service, "batch") == [1.0, 3.0]
