"""The queue between the training thread, which never waits, and the sender, which may be slow."""

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Final

from runwatch.frames import Event
from runwatch_hooks.rows.row import Row
from runwatch_hooks.transport.losses import Loss, LossReason

_ROW_BYTES: Final = 400
"""Memory of a row without its numbers."""
_METRIC_BYTES: Final = 100
_EVENT_BYTES: Final = 1000

Item = Row | Event


@dataclass(frozen=True, slots=True)
class Taken:
    items: list[Item]
    """In the order in which they were queued."""
    losses: list[Loss]


class RowQueue:
    """Bounded by bytes. When full, the oldest ordinary rows are dropped first; urgent rows and
    events last."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        # Reentrant: a signal handler that ends the run may interrupt the training thread in `put`.
        self._lock = threading.RLock()
        self._order = itertools.count()
        self._kinds = _Lanes()
        self._num_bytes = 0
        self._loss: Loss | None = None

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
        size = item_bytes(item)
        is_ordinary = isinstance(item, Row) and not item.urgent
        with self._lock:
            lane = self._kinds.ordinary if is_ordinary else self._kinds.kept
            lane.append((next(self._order), item))
            self._num_bytes += size
            while self._num_bytes > self._limit_bytes and len(self._kinds) > 1:
                self._drop_oldest()

    def take(self) -> Taken:
        """Everything queued since the last call."""
        with self._lock:
            kinds, self._kinds = self._kinds, _Lanes()
            loss, self._loss = self._loss, None
            self._num_bytes = 0
        return Taken(items=list(kinds), losses=[] if loss is None else [loss])

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


class _Lanes:
    """Two queues of numbered items, so that the oldest ordinary row is found without a search."""

    __slots__ = ("kept", "ordinary")

    def __init__(self) -> None:
        self.ordinary: deque[tuple[int, Item]] = deque()
        self.kept: deque[tuple[int, Item]] = deque()

    def __len__(self) -> int:
        return len(self.ordinary) + len(self.kept)

    def __iter__(self) -> Iterator[Item]:
        for _, item in merge(self.ordinary, self.kept, key=lambda numbered: numbered[0]):
            yield item
