"""Ingests frames: they are checked, committed, and only then acknowledged."""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import encode_frame, join_frame, split_frame, unpack_block
from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.json_frames import JsonFrame, from_json_frame, parse_json_frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ConflictError
from runwatch_server.runs.checks import STALE_ATTEMPT, check_proven, run_not_found
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.queries import note_outlived
from runwatch_server.telemetry import ingest_queries as queries
from runwatch_server.telemetry.admission import Received, check_contents, is_to_be_stored
from runwatch_server.telemetry.committed_frames import Committed, CommittedFrame
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget, unpacking_bytes
from runwatch_server.telemetry.frame_rows import FrameRow
from runwatch_server.telemetry.histogram_store import store_histograms
from runwatch_server.telemetry.late_sums import add_late_steps
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.metric_names import MetricNames, without
from runwatch_server.web.zero_bytes import check_json_texts

_INLINE_BYTES: Final = 512 * 1024
"""A frame up to this size is decoded on the event loop, which takes a millisecond: less than
handing it to a thread when all are busy. A larger one goes to a thread, and counts in the memory
budget while it is received."""
_PER_JSON_BYTE: Final = 16
"""Memory per byte of a JSON frame: a number of two characters is an object of 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The reply to the sender once the frame is on disk."""

    attempt: int
    rank: int
    acked: int
    next: int
    duplicate: bool
    event_bytes: int = 0
    """What the details of its events take, which are stored in a table of their own, too."""


class IngestObserver(Protocol):
    """Is notified of what was ingested."""

    def observe_frame(self, received: Received, *, at: float) -> None: ...
    def observe_duplicate(self) -> None: ...
    def observe_refused_metrics(self, number: int) -> None: ...


class OnOutOfOrder(Protocol):
    async def __call__(
        self, connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
    ) -> None: ...


class Ingest:
    """Stores all frames, in whichever form they come."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        layouts: Layouts,
        events: EventLog,
        liveness: Liveness,
        committed: Committed,
        check_disk: Callable[[], None] = lambda: None,
        metrics_per_run: int,
        frame_budget: FrameBudget,
        on_out_of_order: OnOutOfOrder,
        charge: Callable[[str, int], None] = lambda _sender, _num_bytes: None,
        observer: IngestObserver,
    ) -> None:
        """`metrics_per_run` limits a run's metric names; metrics beyond it are left out. `charge`
        counts a sender's bytes before they are unpacked, and raises RateLimitedError if they are
        too many. `on_out_of_order` is called within the transaction that stores a frame after
        others with higher numbers."""
        self._database = database
        self._clock = clock
        self._layouts = layouts
        self._events = events
        self._liveness = liveness
        self._committed = committed
        self._check_disk = check_disk
        self._frame_budget = frame_budget
        self._on_out_of_order = on_out_of_order
        self._charge = charge
        self._observer = observer
        self._names = MetricNames(database, most=metrics_per_run)

    async def put_frame(
        self, run_id: RunId, body: bytes, *, proven: int, late: bool, sender: str = ""
    ) -> IngestResult:
        """Store a frame in binary form. `proven` is the attempt that its sender has proved to be,
        and `sender` whoever is charged for what it takes unpacked. Raises FrameError or
        ServiceError."""
        self._check_disk()
        header, block = split_frame(body)
        check_proven(header.attempt, proven)
        self._charge(sender, header.block_bytes)
        if header.block_bytes <= _INLINE_BYTES:
            return await self._put(run_id, unpack_block(header, block), body, late=late)
        async with self._frame_budget.room(sender, unpacking_bytes(len(body), header.block_bytes)):
            frame = await asyncio.to_thread(unpack_block, header, block)
            return await self._put(run_id, frame, body, late=late)

    async def _put(self, run_id: RunId, frame: Frame, body: bytes, *, late: bool) -> IngestResult:
        frame.check_not_empty()
        layout = await self._layout(run_id, frame.layout_hash)
        if layout is not None:
            frame.check_layout(layout)
        checksum = _checksum(body, frame)
        if frame.histograms:  # stored apart, so that they are found by step
            header, block = split_frame(body)
            body = join_frame(msgspec.structs.replace(header, histograms=()), block)
        return await self._store(
            Received(
                run_id=run_id,
                frame=frame,
                layout=layout,
                body=body,
                checksum=checksum,
                late=late,
            )
        )

    async def put_json_frame(
        self, run_id: RunId, body: bytes, *, proven: int, late: bool, sender: str = ""
    ) -> IngestResult:
        """The same for a frame in JSON form."""
        self._check_disk()
        num_bytes = _PER_JSON_BYTE * len(body)
        self._charge(sender, num_bytes)
        if num_bytes <= _INLINE_BYTES:
            return await self._put_json(run_id, body, proven=proven, late=late)
        async with self._frame_budget.room(sender, num_bytes):
            return await self._put_json(run_id, body, proven=proven, late=late)

    async def _put_json(
        self, run_id: RunId, body: bytes, *, proven: int, late: bool
    ) -> IngestResult:
        check_json_texts("frame", body)
        parsed = await asyncio.to_thread(parse_json_frame, body)
        check_proven(parsed.attempt, proven)
        layout = await self._layout(run_id, parsed.layout)
        frame, encoded = await asyncio.to_thread(_encoded, parsed, layout, self._clock.wall())
        return await self._store(
            Received(
                run_id=run_id,
                frame=frame,
                layout=layout,
                body=encoded,
                checksum=zlib.crc32(body),
                late=late,
            )
        )

    def forget(self, run_id: RunId) -> None:
        """Drop what is cached of a deleted run: a new run under its id has no metrics yet."""
        self._names.forget(run_id)

    async def _layout(self, run_id: RunId, layout_hash: str) -> Layout | None:
        return await self._layouts.find(run_id, layout_hash) if layout_hash else None

    async def _store(self, received: Received) -> IngestResult:
        check_contents(received.frame)
        run_id, names = received.run_id, received.frame.metric_names
        refused = await self._names.refused(run_id, names)
        if refused:
            received = await asyncio.to_thread(_without, received, refused)
        try:
            receipted, project = await self._database.write(
                lambda connection: self._insert(connection, received, refused), of=run_id
            )
        except ConflictError as error:
            if error.code == STALE_ATTEMPT:
                await self._note_outlived(run_id, received.frame.attempt)
            raise
        if receipted.duplicate:
            self._observer.observe_duplicate()
        else:
            self._names.remember(run_id, names, refused)
            self._observer.observe_refused_metrics(len(refused))
            self._notify(received, project)
        return receipted

    async def _note_outlived(self, run_id: RunId, attempt: int) -> None:
        note = partial(note_outlived, run_id=run_id, attempt=attempt, at=self._clock.wall())
        await self._database.write(note, of=run_id)

    def _notify(self, received: Received, project: str) -> None:
        """Notify the listeners of what was just committed."""
        run_id, frame = received.run_id, received.frame
        self._observer.observe_frame(received, at=self._clock.wall())
        if not received.late:
            self._liveness.note_frame(
                run_id,
                frame.attempt,
                frame.rank,
                last_step=frame.last_step,
                times=frame.times.tolist(),
                now=self._clock.monotonic(),
            )
        self._committed(
            CommittedFrame(
                run_id=run_id,
                attempt=frame.attempt,
                rank=frame.rank,
                seq=frame.seq,
                frame=frame,
                layout=received.layout,
                late=received.late,
                project=project,
                num_bytes=8 * len(received.body) + frame.num_bytes,
            )
        )

    async def _insert(
        self, connection: AsyncConnection, received: Received, refused: frozenset[str]
    ) -> tuple[IngestResult, str]:
        """Store a frame; returns the reply to its sender, and the run's project."""
        run_id, frame = received.run_id, received.frame
        state = await queries.stream_state(connection, run_id, frame.attempt, frame.rank)
        if state is None:
            raise run_not_found(run_id)
        if not await is_to_be_stored(connection, received, state):
            return _result(frame, state.next_seq, duplicate=True), state.project
        next_seq = await queries.store_frame(
            connection,
            self._row(received),
            received.body,
            before=state,
            moves_run=frame.rank == 0 and state.current_attempt in (frame.attempt, 0),
        )
        if frame.seq < state.max_seq:
            await self._on_out_of_order(connection, run_id, frame.attempt, frame.rank, frame.seq)
        if received.late:
            await add_late_steps(connection, run_id, frame, received.layout)
        if not self._names.are_stored(run_id, frame.metric_names):
            await queries.add_metrics(connection, run_id, frame.metric_names)
        event_bytes = await self._record_events(connection, run_id, frame, refused)
        await store_histograms(connection, run_id, frame)
        result = _result(frame, next_seq, duplicate=False, event_bytes=event_bytes)
        return result, state.project

    async def _record_events(
        self, connection: AsyncConnection, run_id: RunId, frame: Frame, refused: frozenset[str]
    ) -> int:
        """Returns the bytes of their details."""
        num_bytes = 0
        ours = self._names.news(run_id, frame, refused, at=self._clock.wall())
        for source, events in (("trainer", frame.events), ("service", ours)):
            num_bytes += await self._events.record(
                connection,
                run_id,
                events,
                attempt=frame.attempt,
                rank=frame.rank,
                segment=frame.segment,
                source=source,
            )
        return num_bytes

    def _row(self, received: Received) -> FrameRow:
        frame = received.frame
        return FrameRow(
            run_id=received.run_id,
            attempt=frame.attempt,
            rank=frame.rank,
            seq=frame.seq,
            segment=frame.segment,
            first_step=frame.first_step,
            num_steps=frame.num_steps,
            layout_hash=frame.layout_hash,
            checksum=received.checksum,
            late=received.late,
            received_at=self._clock.wall(),
        )


def _checksum(body: bytes, frame: Frame) -> int:
    """Of the frame itself. What it says to be lost before it may differ when it is sent again, by a
    sender that has begun anew."""
    if not frame.lost:
        return zlib.crc32(body)
    header, block = split_frame(body)
    return zlib.crc32(join_frame(msgspec.structs.replace(header, lost=0), block))


def _without(received: Received, refused: frozenset[str]) -> Received:
    """The body of a frame without the metrics that exceed its run's limit."""
    frame = without(received.frame, refused)
    body = encode_frame(replace(frame, histograms=()))
    return replace(received, frame=frame, body=body)


def _encoded(parsed: JsonFrame, layout: Layout | None, arrived_at: float) -> tuple[Frame, bytes]:
    frame = from_json_frame(parsed, layout=layout, arrived_at=arrived_at)
    try:
        return frame, encode_frame(frame)
    except OverflowError as error:  # JSON integers are unlimited, those of msgpack have 64 bits
        raise FrameError(f"frame: {error}") from error


def _result(frame: Frame, next_seq: int, *, duplicate: bool, event_bytes: int = 0) -> IngestResult:
    return IngestResult(
        attempt=frame.attempt,
        rank=frame.rank,
        acked=frame.seq,
        next=next_seq,
        duplicate=duplicate,
        event_bytes=event_bytes,
    )
