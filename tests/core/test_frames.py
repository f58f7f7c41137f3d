"""A frame refuses what it could not hold truthfully."""

import numpy as np
import pytest

from runwatch.errors import FrameError
from runwatch.frames import Event, Frame
from runwatch.layouts import Layer, Layout

LAYOUT = Layout((Layer("a.weight", (2, 3)), Layer("b.weight", (4,))), ("grad_norm", "nonfinite"))


def frame(**changes: object) -> Frame:
    facts: dict[str, object] = {
        "attempt": 1,
        "rank": 0,
        "seq": 1,
        "segment": 0,
        "first_step": 10,
        "times": np.array([1.0, 2.0]),
        "metric_names": ("loss",),
        "metrics": np.array([[0.5], [np.nan]]),
        "layout_hash": LAYOUT.hash,
        "stats": np.arange(8, dtype=np.float32).reshape(2, 4),
    }
    return Frame(**(facts | changes))  # type: ignore[arg-type]


def test_a_stat_is_read_over_all_layers() -> None:
    assert frame().stat(LAYOUT, "nonfinite").tolist() == [[2.0, 3.0], [6.0, 7.0]]


def test_the_last_step_follows_from_the_first() -> None:
    assert frame().last_step == 11


def test_events_may_come_without_steps() -> None:
    phase = Event(step=3, kind="phase", at=1.0)

    alone = Frame(1, 0, 1, 0, first_step=3, times=np.empty(0), events=(phase,))

    assert (alone.num_steps, alone.last_step) == (0, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq": 0}, "seq: found 0, wanted 1 to"),
        ({"first_step": -1}, "first_step: found -1"),
        ({"times": np.array([1.0])}, "metrics: found shape"),
        ({"times": np.array([1.0, np.nan])}, "times: found a value that is not finite"),
        ({"metric_names": ("loss", "lr")}, r"metrics: found shape \(2, 1\), wanted 2 x 2"),
        ({"metric_names": ("",)}, "a name of 0 bytes"),
        ({"metric_names": ("a", "a"), "metrics": np.ones((2, 2))}, "a name twice"),
        ({"layout_hash": ""}, "layout: found '' with 8 values"),
        ({"stats": np.empty((2, 0), np.float32)}, "with 0 values"),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(FrameError, match=message):
        frame(**changes)


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="no step and no event"):
        Frame(1, 0, 1, 0, first_step=0, times=np.empty(0)).check_not_empty()


def test_columns_of_another_layout_are_refused() -> None:
    other = Layout((Layer("a.weight"),), ("grad_norm",))

    with pytest.raises(FrameError, match="found 4 columns, wanted 1"):
        frame().check_layout(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": np.array([1.7e12, 1.8e12])}, r"times: found 1.8e\+12, wanted Unix seconds"),
        ({"events": (Event(10, "phase", -1.0),)}, "event 'phase': found -1, wanted Unix seconds"),
        ({"events": (Event(-2, "phase", 1.0),)}, "event 'phase': step: found -2, wanted -1 to"),
        ({"events": (Event(2**62, "phase", 1.0),)}, f"step: found {2**62}, wanted -1 to {2**53}"),
        ({"first_step": 2**53}, f"last step: found {2**53 + 1}, wanted 0 to {2**53}"),
    ],
)
def test_what_no_calendar_and_no_run_has_is_refused_as_it_comes_in(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(FrameError, match=message):
        frame(**changes).check_arrival()
