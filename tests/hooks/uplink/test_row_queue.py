"""The queue's bounds, its order of sacrifice, and the rows that wait for what is logged."""

import math
from collections.abc import Callable
from threading import Thread
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.uplink.factories import event, row

from runwatch.frames import Event
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink.queue import Item, RowQueue, item_bytes

ROW_BYTES = item_bytes(row())
SOON: Final = -math.inf
"""No row has waited at all."""
LATE: Final = math.inf


def logged(step: int, **metrics: float) -> Row:
    return row(step, metrics=metrics, layout=None, stats=None, is_logged=True)


def taken(queue: RowQueue, now: float = SOON, *, is_last: bool = False) -> list[tuple[int, object]]:
    items = queue.take(now, is_last=is_last).items
    return [(item.step, item.metrics if isinstance(item, Row) else item.kind) for item in items]


def test_items_come_out_in_the_order_in_which_they_went_in() -> None:
    queue = RowQueue(10**6)
    items: list[Item] = [row(0), event(0), row(1, urgent=True), row(2)]
    for item in items:
        queue.put(item)

    assert queue.take().items == items
    assert queue.take().items == []


def test_the_oldest_ordinary_rows_go_first() -> None:
    queue = RowQueue(3 * ROW_BYTES)
    for step in range(6):
        queue.put(row(step, urgent=step in (0, 1)))

    assert [item.step for item in queue.take().items] == [0, 1, 5]


def test_a_queue_of_urgent_rows_is_bounded_as_well() -> None:
    queue = RowQueue(3 * ROW_BYTES)
    for step in range(6):
        queue.put(row(step, urgent=True))

    assert [item.step for item in queue.take().items] == [3, 4, 5]


class Interrupting:
    """Stats in whose midst a signal handler puts something into the same queue."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self.size = 1

    @property
    def nbytes(self) -> int:
        self._interrupt()
        return 0


def test_a_handler_that_interrupts_a_put_can_put_as_well() -> None:
    queue = RowQueue(3 * ROW_BYTES)

    def fill() -> None:
        queue.put(row(0, stats=Interrupting(lambda: queue.put(event(7)))))
        for step in range(1, 6):
            queue.put(row(step))  # the first row is dropped, which asks for its size again

    # In a thread, since what is wrong here never ends.
    thread = Thread(target=fill, daemon=True)
    thread.start()
    thread.join(60)

    assert not thread.is_alive()
    assert 7 in [item.step for item in queue.take().items]


def test_a_loss_is_told_once_with_its_range() -> None:
    queue = RowQueue(3 * ROW_BYTES)
    for step in range(6):
        queue.put(row(step))
    (loss,) = queue.take().losses

    assert (loss.num_rows, loss.first_step, loss.last_step) == (3, 0, 2)
    assert queue.take().losses == []


@given(st.lists(st.tuples(st.sampled_from(["row", "urgent", "event"]), st.booleans())))
def test_nothing_is_lost_without_being_counted(moves: list[tuple[str, bool]]) -> None:
    queue = RowQueue(5 * ROW_BYTES)
    num_seen = 0
    for step, (kind, takes) in enumerate(moves):
        queue.put(event(step) if kind == "event" else row(step, urgent=kind == "urgent"))
        if takes or step == len(moves) - 1:
            taken = queue.take()
            num_seen += len(taken.items)
            num_seen += sum(loss.num_rows + loss.num_events for loss in taken.losses)
            held = sum(item_bytes(item) for item in taken.items)
            assert held <= 5 * ROW_BYTES or len(taken.items) == 1

    assert num_seen == len(moves)


def test_events_outlive_rows() -> None:
    queue = RowQueue(2 * ROW_BYTES + item_bytes(event()))
    queue.put(event(0, kind="rollback"))
    for step in range(6):
        queue.put(row(step))

    assert isinstance(queue.take().items[0], Event)


def test_what_is_logged_joins_the_row_of_its_step_which_waits_for_it() -> None:
    queue = RowQueue(10**6)
    queue.put(logged(0, before=1.0))
    queue.put(row(0))
    queue.put(logged(0, a=2.0))
    assert taken(queue) == []
    queue.put(logged(0, b=3.0))
    queue.put(event(0))
    queue.close_row(0, 0)

    numbers = {"before": 1.0, "loss": 1.0, "a": 2.0, "b": 3.0}
    assert sorted(map(str, taken(queue))) == sorted(map(str, [(0, numbers), (0, "phase")]))


def test_a_joined_row_is_the_steps_own_otherwise() -> None:
    queue = RowQueue(10**6)
    own = row(3)
    for item in (logged(3, a=1.0), own, logged(3, b=1.0)):
        queue.put(item)
    (joined,) = queue.take(LATE).items

    assert isinstance(joined, Row)
    assert (joined.stats, joined.layout, joined.is_logged) == (own.stats, own.layout, False)


def test_nothing_waits_in_a_run_that_logs_nothing() -> None:
    queue = RowQueue(10**6)
    queue.put(row(0))

    assert taken(queue) == [(0, {"loss": 1.0})]


def test_a_row_waits_for_the_next_step_or_some_seconds_and_no_longer() -> None:
    queue = RowQueue(10**6)
    queue.put(logged(0, a=1.0))
    queue.put(row(0))
    queue.put(row(1))
    assert taken(queue) == [(0, {"a": 1.0, "loss": 1.0})]
    assert taken(queue, LATE) == [(1, {"loss": 2.0})]
    queue.put(logged(1, a=2.0))
    queue.put(logged(1, b=2.0))
    assert taken(queue) == []
    assert taken(queue, LATE) == [(1, {"a": 2.0, "b": 2.0})]


def test_what_is_logged_for_the_step_under_way_waits_for_its_row_however_long() -> None:
    queue = RowQueue(10**6)
    queue.put(row(0))
    queue.close_row(0, 0)
    queue.put(logged(1, a=1.0))
    assert taken(queue, LATE) == [(0, {"loss": 1.0})]
    assert taken(queue, LATE) == []
    queue.put(row(1))

    assert taken(queue, LATE) == [(1, {"a": 1.0, "loss": 2.0})]


def test_if_that_step_never_ends_it_is_recorded_for_the_last_that_did() -> None:
    queue = RowQueue(10**6)
    queue.put(row(4, segment=1))
    queue.put(row(5, segment=1, is_logged=True))
    (own, late) = queue.take(LATE, is_last=True).items

    assert isinstance(late, Row)
    assert (own.step, late.step, late.segment) == (4, 4, 1)


@pytest.mark.parametrize(
    "bad",
    [row(1, urgent=True), row(1, metrics={"loss": 1.0, "mine": math.nan}), logged(1, a=math.inf)],
    ids=["urgent", "not finite", "logged and not finite"],
)
def test_a_row_that_is_urgent_or_not_finite_does_not_wait(bad: Row) -> None:
    queue = RowQueue(10**6)
    queue.put(logged(0, a=1.0))
    queue.put(bad)

    assert taken(queue)[-1] == (1, bad.metrics)


def test_a_row_that_a_logged_number_makes_urgent_is_not_dropped_before_others() -> None:
    queue = RowQueue(3 * ROW_BYTES)
    queue.put(row(0))
    queue.put(row(0, metrics={"loss": 9.0}, layout=None, stats=None, is_logged=True, urgent=True))
    for step in range(1, 6):
        queue.put(row(step))

    assert [item.step for item in queue.take(LATE).items] == [0, 4, 5]


def test_a_number_that_is_logged_again_replaces_the_former_unless_that_was_not_finite() -> None:
    queue = RowQueue(10**6)
    for numbers in ({"a": 1.0, "b": math.inf}, {"a": 2.0, "b": 3.0}):
        queue.put(logged(0, **numbers))

    assert taken(queue, is_last=True) == [(0, {"a": 2.0, "b": math.inf})]


def test_rows_of_one_step_in_two_segments_are_two() -> None:
    queue = RowQueue(10**6)
    for item in (row(5), row(5, segment=1, is_logged=True), row(5, segment=1)):
        queue.put(item)

    assert [item.segment for item in queue.take(LATE).items if isinstance(item, Row)] == [0, 1]
