"""The queue between the training thread, which never waits, and the sender, which may be slow."""

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import merge
from typing import Final

from runwatch.frames import Event
from runwatch_hooks.step.row import Row


class LossReason(StrEnum):
    QUEUE_FULL = "queue_full"
    """The sender did not keep up."""
    SPOOL_FULL = "spool_full"
    """The service was away for longer than the spool has room for."""
    SPOOL_DAMAGED = "spool_damaged"
    """A record on disk failed its checksum."""
    INVALID = "invalid"
    """Rows that cannot be a frame: a name too long, or columns that do not match the layout."""
    REFUSED = "refused"
    """The service refused the frame; its bytes are kept in the spool's folder."""


@dataclass(frozen=True, slots=True)
class Loss:
    reason: LossReason
    first_step: int
    last_step: int
    num_rows: int = 0
    num_events: int = 0

    def joined(self, later: "Loss") -> "Loss":
        return replace(
            self,
            first_step=min(self.first_step, later.first_step),
            last_step=max(self.last_step, later.last_step),
            num_rows=self.num_rows + later.num_rows,
            num_events=self.num_events + later.num_events,
        )

    def to_event(self, at: float) -> Event:
        """The `gap` event that reports it, in the next frame."""
        return Event(
            step=self.first_step,
            kind="gap",
            at=at,
            detail={
                "reason": self.reason.value,
                "last_step": self.last_step,
                "lost_rows": self.num_rows,
                "lost_events": self.num_events,
            },
        )


def loss_of(event: Event) -> Loss | None:
    """The loss that a `gap` event reports; None for any other event."""
    detail = event.detail
    reason, last_step = detail.get("reason"), detail.get("last_step")
    num_rows, num_events = detail.get("lost_rows"), detail.get("lost_events")
    if event.kind != "gap" or reason not in list(LossReason):
        return None
    if not (
        isinstance(last_step, int) and isinstance(num_rows, int) and isinstance(num_events, int)
    ):
        return None
    return Loss(LossReason(str(reason)), event.step, last_step, num_rows, num_events)


class LossLedger:
    """Losses not yet reported in a frame, one for each reason, and the count of all lost rows."""

    def __init__(self) -> None:
        self._untold: dict[LossReason, Loss] = {}
        self.num_rows = 0

    def add(self, loss: Loss) -> None:
        self.num_rows += loss.num_rows
        self.tell_again(loss)

    def tell_again(self, loss: Loss) -> None:
        """Report a counted loss again, because the frame with its report was lost."""
        earlier = self._untold.get(loss.reason)
        self._untold[loss.reason] = loss if earlier is None else earlier.joined(loss)

    def take_events(self, at: float) -> list[Event]:
        losses, self._untold = self._untold, {}
        return [loss.to_event(at) for loss in losses.values()]


_ROW_BYTES: Final = 400
"""Memory of a row without its numbers."""
_METRIC_BYTES: Final = 100
_EVENT_BYTES: Final = 1000
_LOGGING_S: Final = 5.0
"""How long the row of a step waits for what is logged for it, if no next step begins: an evaluation
follows it. Alerts about that step are so much later, so it is short; what is logged after it has a
row of its own. A row that is urgent, or has a number that is not finite, does not wait."""

Item = Row | Event


@dataclass(frozen=True, slots=True)
class Taken:
    items: list[Item]
    """In the order in which they were queued."""
    losses: list[Loss]


Place = tuple[int, int]
"""A segment and a step in it."""


class RowQueue:
    """Bounded by bytes. When full, the oldest ordinary rows are dropped first; urgent rows and
    events last.

    What is logged joins the row of its step. If the program logs anything, the newest row is
    therefore left in the queue until nothing more can be logged for it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        # Reentrant: a signal handler that ends the run may interrupt the training thread in `put`.
        self._lock = threading.RLock()
        self._order = itertools.count()
        self._kinds = _Lanes()
        self._num_bytes = 0
        self._loss: Loss | None = None
        self._newest: Row | None = None
        """The newest row that has not been taken."""
        self._since = 0.0
        """When it was queued, by the monotonic clock."""
        self._has_logged = False
        self._ended: Place = (-1, -1)
        """The furthest step that has a row of its own."""
        self._closed: Place = (-1, -1)
        """The furthest step for which nothing more is logged."""

    @property
    def is_half_full(self) -> bool:
        return 2 * self._num_bytes > self._limit_bytes

    @property
    def num_untold_rows(self) -> int:
        """Rows dropped since the last `take`."""
        loss = self._loss
        return 0 if loss is None else loss.num_rows

    def put(self, item: Item) -> None:
        """Queue an item. Waits for nothing but a `take`, which only swaps two references."""
        with self._lock:
            if isinstance(item, Row) and item.metrics:  # not one of activations or histograms
                item = self._newest = self._with_what_was_logged(item)
            self._append(item)
            while self._num_bytes > self._limit_bytes and len(self._kinds) > 1:
                self._drop_oldest()

    def close_row(self, step: int, segment: int) -> None:
        """Nothing more is logged for this step."""
        self._closed = max(self._closed, (segment, step))

    def take(self, now: float | None = None, *, is_last: bool = False) -> Taken:
        """Everything queued since the last call, except a row that waits for what is logged for its
        step. `is_last`: nothing is logged any more. `now` is the monotonic clock's time."""
        with self._lock:
            waiting = self._withdraw_waiting(time.monotonic() if now is None else now)
            if is_last and waiting is not None:
                self._append(self._settled(waiting))
                waiting = None
            kinds, self._kinds = self._kinds, _Lanes()
            loss, self._loss = self._loss, None
            self._num_bytes = 0
            self._newest = waiting
            if waiting is not None:
                self._append(waiting)
        return Taken(items=list(kinds), losses=[] if loss is None else [loss])

    def _append(self, item: Item) -> None:
        size = item_bytes(item)
        is_ordinary = isinstance(item, Row) and not item.urgent
        lane = self._kinds.ordinary if is_ordinary else self._kinds.kept
        lane.append((next(self._order), item))
        self._num_bytes += size

    def _with_what_was_logged(self, row: Row) -> Row:
        """The row, joined with the newest one if they are of one step."""
        newest, joined = self._newest, row
        if row.is_logged:
            self._has_logged = True
        else:
            self._ended = max(self._ended, _place_of(row))
        if newest is not None and _place_of(newest) == _place_of(row):
            is_any_logged = row.is_logged or newest.is_logged
            if is_any_logged and self._withdraw(newest):
                joined = newest.joined_by(row)
        if joined is row or not row.is_logged:
            self._since = time.monotonic()
        return joined

    def _withdraw_waiting(self, now: float) -> Row | None:
        """Take out the newest row, if it waits."""
        newest = self._newest
        if newest is None or not self._has_logged or not _may_wait(newest):
            return None
        place = _place_of(newest)
        is_under_way = newest.is_logged and place > self._ended
        if not (is_under_way or (place > self._closed and now - self._since < _LOGGING_S)):
            return None
        return newest if self._withdraw(newest) else None

    def _withdraw(self, row: Row) -> bool:
        if not self._kinds.remove(row):  # a signal handler has interrupted what moves it
            return False
        self._num_bytes -= item_bytes(row)
        return True

    def _settled(self, row: Row) -> Row:
        """The last row. What was logged for a step that never ended is recorded for the last one
        that did."""
        segment, step = self._ended
        if not row.is_logged or step < 0 or _place_of(row) <= self._ended:
            return row
        return replace(row, step=step, segment=segment)

    def _drop_oldest(self) -> None:
        _, item = (self._kinds.ordinary or self._kinds.kept).popleft()
        self._num_bytes -= item_bytes(item)
        loss = Loss(
            reason=LossReason.QUEUE_FULL,
            first_step=item.step,
            last_step=item.step,
            num_rows=int(isinstance(item, Row)),
            num_events=int(isinstance(item, Event)),
        )
        self._loss = loss if self._loss is None else self._loss.joined(loss)


def item_bytes(item: Item) -> int:
    """The approximate memory of an item."""
    if isinstance(item, Event):
        return _EVENT_BYTES
    stats_bytes = 0 if item.stats is None else item.stats.nbytes
    stats_bytes += sum(one.num_bytes for one in item.histograms)
    return _ROW_BYTES + _METRIC_BYTES * len(item.metrics) + stats_bytes


def _place_of(row: Row) -> Place:
    return row.segment, row.step


def _may_wait(row: Row) -> bool:
    return not row.urgent and all(map(math.isfinite, row.metrics.values()))


class _Lanes:
    """Two queues of numbered items, so that the oldest ordinary row is found without a search."""

    __slots__ = ("kept", "ordinary")

    def __init__(self) -> None:
        self.ordinary: deque[tuple[int, Item]] = deque()
        self.kept: deque[tuple[int, Item]] = deque()

    def remove(self, row: Row) -> bool:
        """Take out a row, which is one of the last; False if it is not there."""
        lane = self.kept if row.urgent else self.ordinary
        for back in range(1, len(lane) + 1):
            if lane[-back][1] is row:
                del lane[-back]
                return True
        return False

    def __len__(self) -> int:
        return len(self.ordinary) + len(self.kept)

    def __iter__(self) -> Iterator[Item]:
        for _, item in merge(self.ordinary, self.kept, key=lambda numbered: numbered[0]):
            yield item
