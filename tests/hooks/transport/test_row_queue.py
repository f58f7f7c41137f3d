"""The queue's bounds and its order of sacrifice."""

from collections.abc import Callable
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.transport.factories import event, row

from runwatch.frames import Event
from runwatch_hooks.transport.row_queue import Item, RowQueue, item_bytes

ROW_BYTES = item_bytes(row())


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
