"""Snapshots at the steps where they are due, and what is told where none can be taken."""

import logging
import threading

import pytest
from torch import nn

from runwatch_hooks.state import LrScale, SnapshotRing, TrainingState
from runwatch_hooks.state.snapshots import PacedSnapshots


class Locked:
    """Its state holds what cannot be copied, until it is given away."""

    def __init__(self) -> None:
        self.lock: threading.Lock | None = threading.Lock()

    def state_dict(self) -> dict[str, object]:
        return {"lock": self.lock}

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        pass


def test_that_no_snapshot_can_be_taken_is_told_once_and_not_of_a_single_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    locked = Locked()
    ring = SnapshotRing(TrainingState({"": nn.Linear(1, 1)}, [], extra={"locked": locked}))
    paced = PacedSnapshots(ring, LrScale(), every=1, are_taken=True)
    with caplog.at_level(logging.WARNING):
        told = [paced.note_step(step, healthy=True, now=0.0) for step in range(4)]

    assert [len(events) for events in told] == [0, 1, 0, 0]
    assert "snapshots cannot be taken" in str(told[1][0].detail["what"])
    assert len(caplog.records) == 1
    locked.lock = None
    assert paced.note_step(4, healthy=True, now=0.0) == ()
    assert [one.step for one in ring] == [4]
