"""Rows become frames: consecutive steps of one segment, with the same columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.errors import FrameError
from runwatch.frames import MAX_STEPS, Event, Frame
from runwatch.layouts import Layout
from runwatch_hooks.rows import Row
from runwatch_hooks.transport.losses import Loss, LossReason
from runwatch_hooks.transport.row_queue import Item

MAX_FRAME_BYTES: Final = 4 * 2**20
"""Unpacked. Half of what the service takes compressed, as random numbers do not compress."""
_MAX_EVENTS: Final = 256
"""A quarter of the format's limit, so that wordy events still fit into a header."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Rows and events that go into one frame."""

    rows: list[Row] = field(default_factory=list[Row])
    events: list[Event] = field(default_factory=list[Event])

    @property
    def layout(self) -> Layout | None:
        return _layout(self.rows[0]) if self.rows else None

    def to_loss(self, reason: LossReason) -> Loss:
        steps = [row.step for row in self.rows] + [event.step for event in self.events]
        return Loss(reason, min(steps), max(steps), len(self.rows), len(self.events))


def drafts_of(items: Iterable[Item], max_bytes: int = MAX_FRAME_BYTES) -> Iterator[Draft]:
    """Cuts items, in order, into drafts that can each be one frame.

    An event goes with the rows before it; its own step says where it belongs.
    """
    draft = Draft()
    for item in items:
        if isinstance(item, Event):
            if len(draft.events) == _MAX_EVENTS:
                yield draft
                draft = Draft()
            draft.events.append(item)
            continue
        if draft.rows and not _continues(draft, item, max_bytes):
            yield draft
            draft = Draft()
        draft.rows.append(item)
    if draft.rows or draft.events:
        yield draft


def frame_of(draft: Draft, *, rank: int, seq: int, segment: int) -> Frame:
    """The frame of a draft, with attempt 0: the true one is filled in when it is sent.

    `segment` is for a draft that holds only events. Raises FrameError for rows that make no
    frame.
    """
    rows, layout = draft.rows, draft.layout
    names = tuple(rows[0].metrics) if rows else ()
    frame = Frame(
        attempt=0,
        rank=rank,
        seq=seq,
        segment=rows[0].segment if rows else segment,
        first_step=rows[0].step if rows else draft.events[0].step,
        times=np.array([row.at for row in rows], np.float64),
        metric_names=names,
        metrics=np.array(
            [[row.metrics[name] for name in names] for row in rows], np.float64
        ).reshape(len(rows), len(names)),
        layout_hash="" if layout is None else layout.hash,
        stats=_stats_of(rows, layout),
        events=tuple(draft.events),
    )
    if layout is not None:
        frame.check_layout(layout)
    return frame


def _stats_of(rows: list[Row], layout: Layout | None) -> NDArray[np.float32]:
    if layout is None:
        return np.empty((len(rows), 0), np.float32)
    columns = [row.stats for row in rows if row.stats is not None]
    if any(column.shape != columns[0].shape for column in columns):
        raise FrameError("stats: found rows of different lengths under one layout")
    return np.stack(columns)


def _continues(draft: Draft, row: Row, max_bytes: int) -> bool:
    last = draft.rows[-1]
    return (
        row.step == last.step + 1
        and row.segment == last.segment
        and _same_columns(last, row)
        and len(draft.rows) < MAX_STEPS
        and (len(draft.rows) + 1) * _unpacked_bytes(row) <= max_bytes
    )


def _same_columns(left: Row, right: Row) -> bool:
    if left.metrics.keys() != right.metrics.keys():
        return False
    ours, theirs = _layout(left), _layout(right)
    if ours is theirs:
        return True
    return ours is not None and theirs is not None and ours.hash == theirs.hash


def _layout(row: Row) -> Layout | None:
    """A layout with no numbers under it, or without columns, says nothing."""
    return row.layout if row.stats is not None and row.stats.size else None


def _unpacked_bytes(row: Row) -> int:
    stats_bytes = 0 if row.stats is None else row.stats.nbytes
    return 8 * (1 + len(row.metrics)) + stats_bytes
