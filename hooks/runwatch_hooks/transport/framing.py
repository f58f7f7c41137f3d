"""Groups rows into frames: consecutive steps of one segment, with the same layers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.errors import FrameError
from runwatch.frames import MAX_STEPS, Event, Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch_hooks.rows.row import Row
from runwatch_hooks.transport.losses import Loss, LossReason
from runwatch_hooks.transport.row_queue import Item

MAX_FRAME_BYTES: Final = 4 * 2**20
"""Uncompressed. Half of the service's limit for compressed frames, as random numbers do not
compress."""
_MAX_EVENTS: Final = 256
"""A quarter of the format's limit, so that long events still fit into the header."""
_MOST_MIXED_METRICS: Final = 128
"""Rows with different metrics (a loss per task in turn, an accuracy now and then) share a frame up
to this many names. A metric that a row lacks is 'not recorded', and takes eight bytes."""
_MOST_FILLED_BYTES: Final = 2**16
"""A row without layers (a micro-batch without an optimizer step) shares a frame with rows that have
some, unless it would take more than this: its layers are then filled with 'not recorded'."""


@dataclass(slots=True)
class Draft:
    """The rows and events of one frame."""

    rows: list[Row] = field(default_factory=list[Row])
    events: list[Event] = field(default_factory=list[Event])
    names: dict[str, None] = field(default_factory=dict[str, None])
    """Names of the rows' metrics, in the order in which they first occurred."""
    layout: Layout | None = None
    """That of all its rows with layers; None if none has any."""
    stats_bytes: int = 0
    """Bytes of a row's layers."""

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.names.update(dict.fromkeys(row.metrics))
        self.layout = self.layout or _layout(row)
        self.stats_bytes = max(self.stats_bytes, _stats_bytes(row))

    def to_loss(self, reason: LossReason) -> Loss:
        steps = [row.step for row in self.rows] + [event.step for event in self.events]
        return Loss(reason, min(steps), max(steps), len(self.rows), len(self.events))


def drafts_of(items: Iterable[Item], max_bytes: int = MAX_FRAME_BYTES) -> Iterator[Draft]:
    """Split items, in order, into drafts that each fit into one frame.

    An event goes with the rows before it; it contains the step that it belongs to.
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
        draft.add(item)
    if draft.rows or draft.events:
        yield draft


def frame_of(draft: Draft, *, rank: int, seq: int, segment: int) -> Frame:
    """The frame of a draft, with attempt 0: the real number is filled in when it is sent.

    `segment` is for a draft with only events. Raises FrameError for rows that cannot be a frame.
    """
    rows, layout = draft.rows, draft.layout
    metrics = np.full((len(rows), len(draft.names)), ABSENT_64)
    for place, row in enumerate(rows):
        metrics[place] = [row.metrics.get(name, ABSENT_64) for name in draft.names]
    frame = Frame(
        attempt=0,
        rank=rank,
        seq=seq,
        segment=rows[0].segment if rows else segment,
        first_step=rows[0].step if rows else draft.events[0].step,
        times=np.array([row.at for row in rows], np.float64),
        metric_names=tuple(draft.names),
        metrics=metrics,
        layout_hash="" if layout is None else layout.hash,
        stats=_stats_of(rows, layout),
        events=tuple(draft.events),
        histograms=tuple(one for row in rows for one in row.histograms),
    )
    if layout is not None:
        frame.check_layout(layout)
    return frame


def _stats_of(rows: list[Row], layout: Layout | None) -> NDArray[np.float32]:
    if layout is None:
        return np.empty((len(rows), 0), np.float32)
    given = [row.stats for row in rows if row.stats is not None and row.stats.size]
    if any(columns.shape != given[0].shape for columns in given):
        raise FrameError("stats: found rows of different lengths under one layout")
    stats = np.full((len(rows), len(given[0])), ABSENT_32)
    stats[[_layout(row) is not None for row in rows]] = given
    return stats


def _continues(draft: Draft, row: Row, max_bytes: int) -> bool:
    last = draft.rows[-1]
    return (
        row.step == last.step + 1
        and not row.histograms  # they fill the header of a frame
        and row.segment == last.segment
        and _fits_layout(draft, row)
        and len(draft.rows) < MAX_STEPS
        and _has_room_for(draft, row, max_bytes)
    )


def _has_room_for(draft: Draft, row: Row, max_bytes: int) -> bool:
    names = draft.names.keys() | row.metrics.keys()
    is_mixed = draft.names.keys() != row.metrics.keys()
    if is_mixed and not (len(names) <= _MOST_MIXED_METRICS and _can_be_sent(names)):
        return False
    stats_bytes = max(_stats_bytes(row), draft.stats_bytes)
    return (len(draft.rows) + 1) * (8 * (1 + len(names)) + stats_bytes) <= max_bytes


def _can_be_sent(names: Iterable[str]) -> bool:
    """Whether the names can be encoded. A row with one that cannot gets a frame of its own, so that
    its neighbours are not lost with it."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits_layout(draft: Draft, row: Row) -> bool:
    ours, theirs = draft.layout, _layout(row)
    if ours is theirs:
        return True
    if ours is None or theirs is None:
        return max(_stats_bytes(row), draft.stats_bytes) <= _MOST_FILLED_BYTES
    return ours.hash == theirs.hash


def _layout(row: Row) -> Layout | None:
    """The row's layout; None if it has no stats under it."""
    return row.layout if row.stats is not None and row.stats.size else None


def _stats_bytes(row: Row) -> int:
    return 0 if row.stats is None else row.stats.nbytes
