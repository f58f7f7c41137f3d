"""How often snapshots are taken: by what one costs, in steps of this training."""

import pytest

from runwatch_hooks.state.snapshots import DEFAULT_EVERY, MAX_EVERY, WARM_UP, SnapshotPace


def paced(*, capture_s: float, step_s: float, every: int | None = None) -> SnapshotPace:
    """After some captures that cost the same."""
    pace = SnapshotPace(every)
    pace.note_step(step_s)
    for _ in range(WARM_UP + 1):
        pace.note_capture(capture_s)
    return pace


@pytest.mark.parametrize(
    ("capture_s", "step_s", "every"),
    [
        (0.012, 1.0, DEFAULT_EVERY),
        (0.012, 0.030, DEFAULT_EVERY),
        (0.012, 0.005, 400),
        (0.012, 0.001, 1600),
        (10.0, 0.001, MAX_EVERY),
    ],
)
def test_captures_take_at_most_a_hundredth_of_the_time(
    capture_s: float, step_s: float, every: int
) -> None:
    assert paced(capture_s=capture_s, step_s=step_s).every == every


def test_the_first_captures_make_their_buffers_and_count_for_nothing() -> None:
    pace = SnapshotPace()
    pace.note_step(0.005)

    assert [pace.note_capture(1.0) for _ in range(WARM_UP)] == [False] * WARM_UP
    assert pace.every == DEFAULT_EVERY


def test_what_the_user_asked_for_stays() -> None:
    pace = paced(capture_s=1.0, step_s=0.001, every=10)
    pace.follow(400)

    assert pace.every == 10


def test_one_slow_capture_is_made_good_by_cheap_ones() -> None:
    pace = paced(capture_s=0.1, step_s=0.005)
    slowest = pace.every

    assert pace.note_capture(0.001)
    assert pace.every < slowest


def test_an_evaluation_makes_no_capture_cheap() -> None:
    pace = SnapshotPace()
    for step in range(100):
        pace.note_step(60.0 if step % 10 == 9 else 0.005)
    for _ in range(WARM_UP + 1):
        pace.note_capture(0.012)

    assert pace.every == 400


def test_a_step_without_a_time_changes_nothing() -> None:
    pace = SnapshotPace()

    assert [pace.note_capture(1.0) for _ in range(WARM_UP + 2)] == [False] * (WARM_UP + 2)
