"""The folders that Accelerate saves, with the state of a watch or without, and who takes which."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.adapters.program_told import told_by

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("accelerate_states.py")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("states")
    told_by(PROGRAM, folder)
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
