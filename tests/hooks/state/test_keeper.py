"""A checkpoint on its way to the disk, while the training goes on."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from tests.waiting import LONGEST_S, until
from torch import nn

from runwatch_hooks.state import CheckpointStore, TrainingState
from runwatch_hooks.state import checkpoint_manager as module
from runwatch_hooks.state.checkpoint_manager import CheckpointKeeper
from runwatch_hooks.state.finite import FiniteFlag
from runwatch_hooks.state.tree import Captured


@dataclass
class Late:
    """Of copies that an accelerator still makes."""

    is_there: bool = False
    asked_by: set[int] = field(default_factory=set[int])
    num_waits: int = 0

    def is_ready(self) -> bool:
        self.asked_by.add(threading.get_ident())
        return self.is_there

    def wait(self) -> None:
        if not self.is_there:  # a finite flag asks no device once it was ready
            self.num_waits += 1

    def value(self) -> bool:
        return True


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointKeeper]:
    monkeypatch.setattr(module, "_ARRIVAL_S", LONGEST_S)
    made = CheckpointKeeper(CheckpointStore(tmp_path), good_after=2)
    yield made
    assert made.close(60.0)


def begin(keeper: CheckpointKeeper, flag: Late) -> None:
    tree = TrainingState({"": nn.Linear(2, 2)}, []).capture().tree
    keeper.begin(3, lambda into: Captured(tree, cast(FiniteFlag, flag)), {})


def test_the_device_is_asked_for_a_copy_by_the_training_thread_alone(
    keeper: CheckpointKeeper,
) -> None:
    flag = Late()
    begin(keeper, flag)
    before = keeper.written()
    flag.is_there = True
    saves = until(keeper.written)

    assert before == []
    assert [save.probation.step for save in saves] == [3]
    assert flag.asked_by == {threading.get_ident()}
    assert flag.num_waits == 0


def test_what_has_not_arrived_is_waited_for_at_the_end(keeper: CheckpointKeeper) -> None:
    flag = Late()
    begin(keeper, flag)

    assert keeper.drain(60.0)
    assert flag.num_waits == 1
    assert len(keeper.written()) == 1


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_checkpoint_whose_thread_cannot_be_started_does_not_stand_in_the_way_of_the_next(
    keeper: CheckpointKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            begin(keeper, Late(is_there=True))
    begin(keeper, Late(is_there=True))

    assert len(until(keeper.written)) == 1


def test_marks_for_which_no_thread_can_be_started_do_not_end_a_rollback(
    keeper: CheckpointKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refuse)
        keeper.rewind(3)

    assert "checkpoints are not marked: can't start new thread" in caplog.text
