"""Where a frame ends and the next begins."""

import math

import numpy as np
import pytest
from tests.hooks.uplink.factories import LAYOUT, event, row

from runwatch.codec import decode_frame, encode_frame
from runwatch.errors import FrameError
from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import is_absent
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink.queue import Item
from runwatch_hooks.uplink.recorder import drafts_of, frame_of

OTHER = Layout((Layer("other"),), ("grad_norm", "nonfinite"))


def steps_of(*items: Item, max_bytes: int = 10**6) -> list[list[int]]:
    return [[row.step for row in draft.rows] for draft in drafts_of(items, max_bytes)]


def test_consecutive_steps_travel_together() -> None:
    assert steps_of(row(3), row(4), row(5)) == [[3, 4, 5]]


@pytest.mark.parametrize(
    "second",
    [
        row(5),
        row(3),
        row(4, segment=1),
        row(4, layout=OTHER),
        row(4, metrics={f"own/{number}": 1.0 for number in range(128)}),
    ],
    ids=["gap", "same step", "segment", "layout", "too many metrics"],
)
def test_a_change_begins_a_new_frame(second: Row) -> None:
    assert steps_of(row(3), second) == [[3], [second.step]]


def test_rows_with_metrics_of_their_own_travel_together_and_lack_the_others() -> None:
    rows = [
        row(3, metrics={"loss": 1.0, "task_a": 2.0}),
        row(4, metrics={"task_b": math.nan, "loss": 3.0}),
    ]
    (draft,) = drafts_of(rows)
    frame = decode_frame(encode_frame(frame_of(draft, rank=0, seq=1, segment=0)))

    assert frame.metric_names == ("loss", "task_a", "task_b")
    assert is_absent(frame.metrics).tolist() == [[False, False, True], [False, True, False]]
    assert frame.metrics[:, 0].tolist() == [1.0, 3.0]
    assert math.isnan(frame.metrics[1, 2])


def test_steps_without_layers_travel_with_the_others_and_have_none_recorded() -> None:
    rows = [row(step, layout=None, stats=None) if step % 4 else row(step) for step in range(2, 8)]
    (draft,) = drafts_of(rows)
    frame = decode_frame(encode_frame(frame_of(draft, rank=0, seq=1, segment=0)))

    assert frame.layout_hash == LAYOUT.hash
    assert frame.metrics[:, 0].tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert is_absent(frame.stats).all(axis=1).tolist() == [True, True, False, True, True, True]
    assert frame.stats[2].tolist() == [4.0, 4.0]


def test_but_not_where_filling_in_their_layers_would_take_much_room() -> None:
    wide = Layout(tuple(Layer(f"layer{number}") for number in range(17_000)), ("grad_norm",))
    large = row(4, layout=wide, stats=np.zeros(17_000, np.float32))

    assert steps_of(row(3, layout=None, stats=None), large) == [[3], [4]]
    assert steps_of(large, row(5, layout=None, stats=None), row(6)) == [[4], [5, 6]]


def test_rows_under_two_layouts_share_no_frame_though_one_without_lies_between() -> None:
    between = row(4, layout=None, stats=None)

    assert steps_of(row(3), between, row(5, layout=OTHER)) == [[3, 4], [5]]


def test_the_same_layout_in_another_object_changes_nothing() -> None:
    twin = Layout(LAYOUT.layers, LAYOUT.stats)

    assert steps_of(row(3), row(4, layout=twin)) == [[3, 4]]


def test_a_frame_ends_at_its_size() -> None:
    row_bytes = 8 + 8 + 4 * LAYOUT.num_columns

    assert steps_of(row(0), row(1), row(2), max_bytes=2 * row_bytes) == [[0, 1], [2]]


def test_an_event_goes_with_the_rows_before_it() -> None:
    drafts = list(drafts_of([row(0), event(0), row(1), row(7)]))

    assert [[event.step for event in draft.events] for draft in drafts] == [[0], []]


def test_events_alone_make_a_frame_of_the_segment_that_was() -> None:
    (draft,) = drafts_of([event(9)])
    frame = frame_of(draft, rank=0, seq=1, segment=3)

    assert (frame.first_step, frame.num_steps, frame.segment) == (9, 0, 3)


def test_a_frame_holds_what_its_rows_held() -> None:
    (draft,) = drafts_of([row(3), row(4), event(4)])
    frame = decode_frame(encode_frame(frame_of(draft, rank=2, seq=7, segment=0)))

    assert (frame.rank, frame.seq, frame.first_step, frame.metric_names) == (2, 7, 3, ("loss",))
    assert frame.metrics.tolist() == [[4.0], [5.0]]
    assert frame.stats.tolist() == [[3.0, 3.0], [4.0, 4.0]]
    assert (frame.layout_hash, frame.events) == (LAYOUT.hash, (event(4),))


def test_rows_whose_stats_are_not_the_layouts_make_no_frame() -> None:
    (draft,) = drafts_of([row(0, stats=np.zeros(3, np.float32))])

    with pytest.raises(FrameError, match="found 3 columns, wanted 2"):
        frame_of(draft, rank=0, seq=1, segment=0)
