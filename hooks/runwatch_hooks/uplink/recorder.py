"""Makes frames of queued rows and writes them to the spool, before anything is sent."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.codec import encode_frame, split_frame
from runwatch.commands import Receipt
from runwatch.errors import FrameError, InvalidInputError
from runwatch.frames import MAX_STEPS, Event, Frame
from runwatch.layouts import Layout
from runwatch.messages import AttemptClose
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink.client import UplinkSettings
from runwatch_hooks.uplink.queue import Item, Loss, LossLedger, LossReason, RowQueue, loss_of
from runwatch_hooks.uplink.segments import Record, Segments
from runwatch_hooks.uplink.service import UNENCODABLE
from runwatch_hooks.uplink.spool import Splits, Spool, SpoolFolder, SpoolMeta

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


class ReceiptBox:
    """Receipts are put by any thread and delivered by the sender."""

    def __init__(self, receipts: Iterable[Receipt] = ()) -> None:
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._waiting = list(receipts)
        self.version = 0
        """Changes with the content, so that the copy on disk can be kept up to date."""

    def put(self, receipt: Receipt) -> None:
        with self._lock:
            self._waiting.append(receipt)
            self.version += 1

    def waiting(self) -> list[Receipt]:
        with self._lock:
            return list(self._waiting)

    def delivered(self, receipt: Receipt) -> None:
        with self._lock:
            self._waiting.remove(receipt)
            self.version += 1


log = OwnLog(__name__)


class Recorder:
    """Writes one rank's spool. If the disk fails, frames stay in memory.

    Used by the sender's thread. `record` is also called by its stand-in, while it waits for a
    service, and by the training thread, once that waits for the sender no longer; so are `open` and
    `note_end`, which may wait for the disk as well, and `say_what_is_left`, which does not.
    """

    def __init__(
        self,
        settings: UplinkSettings,
        folder: SpoolFolder,
        meta: SpoolMeta,
        queue: RowQueue,
        receipts: ReceiptBox,
    ) -> None:
        """Does not touch the disk, because the training thread builds it."""
        self._segment_bytes = settings.segment_bytes
        self._folder = folder
        self._meta = meta
        self._unwritten_meta = False
        # Two threads may write meta.json: without it, what the sender had just begun to write could
        # replace how the attempt ended.
        self._meta_lock = threading.Lock()
        self._queue = queue
        self._receipts = receipts
        self._written_receipts = receipts.version
        # Several threads may record. Taken before the lock above, never while that one is held.
        self._spool_lock = threading.Lock()
        self._segment = 0
        self._num_damaged_bytes = 0
        self._told_invalid = False
        # Never released. It is not the lock above, which is held while the disk writes.
        self._first_to_say_it = threading.Lock()
        self._notes: list[Event] = []
        """Events of the sender's own, for the next frame with rows: rules read events by rows."""
        self._is_open = False
        self._is_closed = False
        self._on_disk = False
        self.ledger = LossLedger()
        self.spool = Spool(
            disk_bytes=settings.spool_bytes,
            memory_bytes=settings.queue_bytes,
            min_free_bytes=settings.min_free_bytes,
            on_lost=lambda record: self.lose(record, LossReason.SPOOL_FULL),
        )

    @property
    def layouts(self) -> dict[str, dict[str, object]]:
        """Hash -> document of all layouts so far."""
        return self._meta.layouts

    def open(self) -> None:
        """Create the folder, once."""
        with self._spool_lock:
            if self._is_open:
                return
            self._is_open = True
            try:
                self._folder.create(self._meta)
                self.spool.use(Segments(self._folder.path, self._segment_bytes))
                self._on_disk = True
            except OSError as error:
                log.warning("spool: the folder cannot be created, so in memory only: %s", error)

    def record(self, *, now: float, max_frame_bytes: int, is_last: bool = False) -> None:
        """Make frames of what is queued. Losses are reported in the frame that follows them."""
        with self._spool_lock:
            if self._is_closed:
                return
            taken = self._queue.take(time.monotonic(), is_last=is_last)
            for loss in taken.losses:
                self.ledger.add(loss)
            has_rows = any(not isinstance(item, Event) for item in taken.items)
            told = self._take_told(now) if has_rows or is_last else []
            for draft in drafts_of([*told, *taken.items], max_frame_bytes):
                self._keep(draft)
            self._write_meta()
            if self._on_disk:
                self._write_receipts()

    def head(self) -> Record | None:
        """The next record to send."""
        with self._spool_lock:
            record = self.spool.head()
            num_damaged_bytes = self.spool.num_damaged_bytes
            if num_damaged_bytes > self._num_damaged_bytes:
                num_new = num_damaged_bytes - self._num_damaged_bytes
                log.warning("spool: %d bytes are damaged", num_new)
                step = 0 if record is None else split_frame(record.payload)[0].first_step
                self.ledger.add(Loss(LossReason.SPOOL_DAMAGED, step, step))
                self._num_damaged_bytes = num_damaged_bytes
            return record

    @property
    def num_pending(self) -> int:
        """At most so many records wait to be sent."""
        with self._spool_lock:
            return self.spool.num_pending

    def acknowledge(self, record: Record) -> None:
        """The head has arrived."""
        with self._spool_lock:
            self.spool.acknowledge(record)

    def set_aside(self, record: Record) -> None:
        """Drop a record that the service refused, and keep its bytes in a file."""
        with self._spool_lock:
            self.lose(record, LossReason.REFUSED)
            try:
                self._folder.keep_refused(record.seq, record.payload)
            except OSError as error:
                log.warning("spool: a refused frame is not kept: %s", error)
            self.spool.acknowledge(record)

    def lose(self, record: Record, reason: LossReason) -> None:
        header, _ = split_frame(record.payload)
        last_step = header.first_step + max(header.num_steps, 1) - 1
        told = [loss for event in header.events if (loss := loss_of(event)) is not None]
        for loss in told:
            self.ledger.tell_again(loss)
        num_events = len(header.events) - len(told)
        self.ledger.add(Loss(reason, header.first_step, last_step, header.num_steps, num_events))

    def tell_unwatched(self, notices: Iterable[str], record: Record) -> None:
        """Report what is not watched from this record on, in the next frame."""
        for notice in notices:
            step = split_frame(record.payload)[0].first_step
            self._note(Event(step, "unwatched", time.time(), {"what": notice}))

    def tell_clock(self, ahead_s: float, step: int) -> None:
        """Report, and log as a warning, that this machine's clock differs from the service's."""
        way = "ahead of" if ahead_s > 0 else "behind"
        log.warning(
            "this machine's clock is %.0f s %s the service's: times of the run are wrong by as "
            "much, or those of all others are",
            abs(ahead_s),
            way,
        )
        self._note(Event(step, "clock", time.time(), {"ahead_s": round(ahead_s, 1)}))

    def write_splits(self, splits: Splits) -> None:
        try:
            self._folder.write_splits(splits)
        except OSError as error:
            log.debug("spool: splits are not written: %s", error)

    def note_end(self, closing: AttemptClose) -> None:
        """Write down how the attempt ended, for a later `sync`."""
        with self._meta_lock:
            self._meta = msgspec.structs.replace(self._meta, closing=closing)
            self._unwritten_meta = True
            self._write_meta_locked()

    def say_what_is_left(self) -> None:
        """Warn once that records are left in the spool, and how to send them. The training thread
        says so when it stops waiting for the sender, and the sender when it ends, perhaps later."""
        if not self._first_to_say_it.acquire(blocking=False):
            return
        log.warning(
            "not everything was delivered; send the rest with: runwatch sync %s",
            self._folder.path,
        )

    def close(self, *, is_delivered: bool) -> None:
        """Close the spool, and remove it if everything was delivered. Warns about rows that neither
        the disk nor the service has taken."""
        with self._spool_lock:
            self._is_closed = True
            num_rows = self.ledger.num_rows
            if self.spool.give_up_memory():
                log.warning(
                    "%d rows are lost (%d in all): neither the disk nor the service took them",
                    self.ledger.num_rows - num_rows,
                    self.ledger.num_rows,
                )
            if self._on_disk and self.spool.num_pending:
                self.say_what_is_left()
            self.spool.close()
            try:
                if is_delivered and self._on_disk and not self._folder.bad_files():
                    with self._meta_lock:  # a file written meanwhile would keep the folder
                        self._folder.remove()
            except OSError as error:
                log.warning("spool: not removed: %s", error)
            self._folder.close()

    def _note(self, event: Event) -> None:
        with self._spool_lock:
            self._notes.append(event)

    def _take_told(self, now: float) -> list[Event]:
        """Reports of losses and the sender's own events, each once."""
        notes, self._notes = self._notes, []
        return [*self.ledger.take_events(now), *notes]

    def _keep(self, draft: Draft) -> None:
        if draft.layout is not None:
            self._note_layout(draft.layout)  # or a kill could leave frames with an unknown one
        if draft.rows:
            self._segment = draft.rows[-1].segment
        seq = self.spool.next_seq
        try:
            frame = frame_of(draft, rank=self._meta.rank, seq=seq, segment=self._segment)
            payload = encode_frame(frame)
        except (InvalidInputError, *UNENCODABLE) as error:
            if not self._told_invalid:
                log.warning("rows that cannot be encoded are dropped: %s", error)
            self._told_invalid = True
            self.ledger.add(draft.to_loss(LossReason.INVALID))
            return
        self.spool.append(payload)

    def _note_layout(self, layout: Layout) -> None:
        with self._meta_lock:
            if layout.hash not in self._meta.layouts:
                self._meta.layouts[layout.hash] = layout.to_document()
                self._unwritten_meta = True
            self._write_meta_locked()

    def _write_meta(self) -> None:
        """Write meta.json if it has changed. While the disk is full, tried again each time."""
        with self._meta_lock:
            self._write_meta_locked()

    def _write_meta_locked(self) -> None:
        if not (self._on_disk and self._unwritten_meta):
            return
        try:
            self._folder.write_meta(self._meta)
            self._unwritten_meta = False
        except OSError as error:
            log.debug("spool: meta.json is not written: %s", error)
        except UNENCODABLE as error:
            log.warning("spool: meta.json cannot be written: %s", error)
            self._unwritten_meta = False

    def _write_receipts(self) -> None:
        version = self._receipts.version
        if version == self._written_receipts:
            return
        try:
            self._folder.write_receipts(self._receipts.waiting())
            self._written_receipts = version
        except OSError as error:
            log.debug("spool: receipts.json is not written: %s", error)
        except UNENCODABLE as error:
            log.warning("spool: receipts.json cannot be written: %s", error)
            self._written_receipts = version
