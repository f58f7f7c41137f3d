"""Which states a run may go back to."""

import pytest
import torch
from torch import nn

from runwatch_hooks.state import SnapshotRing, TrainingState
from runwatch_hooks.state.probation import Probation


@pytest.fixture
def module() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.fixture
def ring(module: nn.Linear) -> SnapshotRing:
    return SnapshotRing(TrainingState({"model": module}, []), good_after=4)


def train(ring: SnapshotRing, first: int, last: int, *, every: int = 5, bad: int = -9) -> None:
    for step in range(first, last + 1):
        ring.note_step(step, healthy=step != bad)
        if (step + 1) % every == 0 and step != bad:
            ring.take(step)


def steps(ring: SnapshotRing) -> list[int]:
    return [snapshot.step for snapshot in ring]


def newest_good(ring: SnapshotRing, before_step: int | None = None) -> int | None:
    snapshot = ring.newest_good(before_step)
    return None if snapshot is None else snapshot.step


def test_a_snapshot_is_good_after_enough_healthy_steps(ring: SnapshotRing) -> None:
    ring.take(9)
    for step in (10, 11, 12):
        ring.note_step(step, healthy=True)
    assert newest_good(ring) is None

    ring.note_step(13, healthy=True)

    assert newest_good(ring) == 9


def test_one_unhealthy_step_makes_it_suspect_for_good(ring: SnapshotRing) -> None:
    ring.take(9)
    for step in range(10, 30):
        ring.note_step(step, healthy=step != 12)

    assert newest_good(ring) is None


def test_healthy_steps_from_the_onset_on_prove_nothing(ring: SnapshotRing) -> None:
    train(ring, 0, 19)
    assert steps(ring) == [9, 14, 19]
    assert newest_good(ring) == 14

    assert newest_good(ring, before_step=19) == 14
    assert newest_good(ring, before_step=18) == 9


def test_where_none_is_good_the_onset_vouches_for_the_steps_before_it(ring: SnapshotRing) -> None:
    ring.take(1)
    for step in (2, 3, 4):
        ring.note_step(step, healthy=step != 4)

    assert newest_good(ring, before_step=4) is None
    assert [one.step for one in ring.all_healthy(4)] == [1]
    assert ring.all_healthy(5) == []
    assert ring.all_healthy(1) == []


def test_a_state_that_is_not_finite_is_never_good(ring: SnapshotRing, module: nn.Linear) -> None:
    train(ring, 0, 9)
    with torch.no_grad():
        module.weight[0, 0] = float("inf")
    ring.take(10)
    for step in range(11, 30):
        ring.note_step(step, healthy=True)

    assert newest_good(ring) == 9
    assert ring.at_step(10) is None


def test_the_newest_good_one_outlives_any_number_of_later_ones(ring: SnapshotRing) -> None:
    train(ring, 0, 9)
    assert newest_good(ring) == 4

    for step in range(10, 40):
        ring.note_step(step, healthy=step % 3 != 0)
        ring.take(step)

    assert 4 in steps(ring)
    assert len(ring) == 3


def test_snapshots_closer_than_the_probation_still_become_good(ring: SnapshotRing) -> None:
    train(ring, 0, 40, every=1)

    good = newest_good(ring)

    assert good is not None
    assert good >= 40 - 3 * 4


def test_a_rollback_forgets_the_snapshots_of_undone_steps(ring: SnapshotRing) -> None:
    train(ring, 0, 19)

    ring.rewind(14)

    assert steps(ring) == [9, 14]
    assert newest_good(ring) == 14


def test_what_undone_steps_showed_of_a_snapshot_is_forgotten(ring: SnapshotRing) -> None:
    ring.take(9)
    ring.note_step(10, healthy=True)
    ring.note_step(11, healthy=False)

    ring.rewind(9)
    for step in range(10, 14):
        ring.note_step(step, healthy=True)

    assert newest_good(ring) == 9


def test_the_buffers_are_used_again(ring: SnapshotRing) -> None:
    train(ring, 0, 14)
    before = {id(s.captured.tree["modules"]) for s in ring}
    addresses = {_weight_address(ring, index) for index in range(3)}

    train(ring, 15, 29)

    assert before.isdisjoint(id(s.captured.tree["modules"]) for s in ring)
    assert {_weight_address(ring, index) for index in range(3)} == addresses


def _weight_address(ring: SnapshotRing, index: int) -> int:
    captured = list(ring)[index].captured
    return int(captured.tree["modules"]["model"]["parameters"]["weight"].data_ptr())  # type: ignore[index]


def test_fewer_than_three_are_refused(module: nn.Linear) -> None:
    with pytest.raises(ValueError, match="snapshots: found 2, wanted at least 3"):
        SnapshotRing(TrainingState({"model": module}, []), size=2)


def test_a_step_before_the_capture_says_nothing_about_it() -> None:
    probation = Probation(5, needed_steps=2)

    assert not probation.note(5, healthy=False)

    assert not probation.is_suspect
    assert [probation.note(step, healthy=True) for step in (6, 7, 8)] == [False, True, False]
