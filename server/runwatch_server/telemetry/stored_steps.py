"""Reads the steps of a stretch wherever they are stored: in frames as received, or in packs."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import decode_frame, decode_metrics, split_frame
from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.vocabulary import RunId
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.frame_budget import unpacking_bytes
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.packs.contents import Kind
from runwatch_server.telemetry.packs.queries import packs_of_steps
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.packs.unpacking import Found, Part, widened
from runwatch_server.telemetry.queries import HotFrame
from runwatch_server.telemetry.wanted import Wanted


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Some columns of consecutive steps, without steps at which nothing was recorded."""

    steps: NDArray[np.int64]
    """(N,)"""
    values: NDArray[np.float64]
    """(N, C)"""
    gaps: list[Gap]
    """Steps that are stored and could not be read."""


class Frames:
    """Frames in order of their sequence numbers, unpacked one after another whenever they are read:
    many frames of the same steps would take much more memory than there is."""

    def __init__(self, stored: Iterable[HotFrame | Frame], gaps: list[Gap]) -> None:
        self._stored = sorted(stored, key=lambda one: one.seq)
        self._gaps = gaps
        self._corrupt: dict[int, Gap] = {}

    @property
    def gaps(self) -> list[Gap]:
        """Steps that are stored and could not be read; complete once all frames were read."""
        return [*self._gaps, *self._corrupt.values()]

    @property
    def is_empty(self) -> bool:
        return not self._stored

    @property
    def num_hot(self) -> int:
        """Number of frames that were not in packs. If it changes, some arrived or were packed."""
        return sum(isinstance(one, HotFrame) for one in self._stored)

    @property
    def layout_hashes(self) -> set[str]:
        return {one.layout_hash for one in self._stored if one.layout_hash}

    @property
    def num_bytes(self) -> int:
        """Most memory that one of them takes while it is unpacked."""
        hot = (one for one in self._stored if isinstance(one, HotFrame))
        return max(map(_unpacking_bytes, hot), default=0)

    def near(self, first_step: int, end: int, layout_hash: str | None = None) -> Iterator[Frame]:
        """Those of a layout that hold any of these steps; without one all, and their metrics
        alone."""
        for one in self._stored:
            is_near = one.first_step < end and one.first_step + one.num_steps > first_step
            if is_near and layout_hash in (None, one.layout_hash):
                frame = self._read(one, decode_frame if layout_hash else decode_metrics)
                if frame is not None:
                    yield frame

    def _read(self, stored: HotFrame | Frame, decode: Callable[[bytes], Frame]) -> Frame | None:
        if isinstance(stored, Frame):
            return stored
        frame = read_hot(stored, decode)
        if frame is None:
            self._corrupt[stored.seq] = hot_gap(stored)
        return frame


@dataclass(frozen=True, slots=True)
class StoredSteps:
    """One rank's steps, as of one committed state of the database."""

    connection: AsyncConnection
    packs: PackReader
    run_id: RunId
    rank: int

    async def columns(self, stretch: Stretch, wanted: Wanted) -> Columns:
        """The wanted columns of a stretch. Only these are kept of each frame: all columns would
        need too much memory."""
        first, last = stretch.first_step, stretch.last_step
        hot = await queries.frames_of_steps(self.connection, self.run_id, self.rank, stretch)
        found = await asyncio.to_thread(_hot_parts, hot, wanted)
        for pack in await packs_of_steps(self.connection, self.run_id, self.rank, stretch):
            found += await self.packs.columns(pack, wanted.place, first, last)
        gaps = self.noted(stretch, found.gaps)
        steps, values = await asyncio.to_thread(
            _laid_over, found.items, wanted.num_columns, first, last
        )
        return Columns(steps, values, gaps)

    async def frames(self, stretch: Stretch) -> Frames:
        """The frames that hold any of these steps. Their gaps are for the caller to report."""
        stored: list[HotFrame | Frame] = []
        stored += await queries.frames_of_steps(self.connection, self.run_id, self.rank, stretch)
        gaps: list[Gap] = []
        for pack in await packs_of_steps(self.connection, self.run_id, self.rank, stretch):
            cold = await self.packs.frames(pack, pack.first_seq, pack.last_seq)
            stored += [one.frame for one in cold.items if _holds(one.frame, stretch)]
            gaps += cold.gaps
        return Frames(stored, gaps)

    def noted(self, stretch: Stretch, gaps: Iterable[Gap]) -> list[Gap]:
        """The gaps within the stretch, also reported to the observer."""
        within = [
            replace(
                gap,
                first_step=max(gap.first_step, stretch.first_step),
                last_step=min(gap.last_step, stretch.last_step),
            )
            for gap in gaps
            if gap.first_step <= stretch.last_step and gap.last_step >= stretch.first_step
        ]
        self.packs.note(self.run_id, stretch.attempt, self.rank, within)
        return within


def unpack_hot(hot: HotFrame, decode: Callable[[bytes], Frame] = decode_frame) -> Frame:
    """A frame as it was received. Raises FrameError if its bytes are corrupt.

    The block has a checksum of its own; the header is checked against the frame's row.
    """
    frame = decode(hot.body)
    found = (frame.seq, frame.segment, frame.first_step, frame.num_steps)
    wanted = (hot.seq, hot.segment, hot.first_step, hot.num_steps)
    if found != wanted:
        raise FrameError(
            f"header: found seq, segment, first step and number of steps {found}, wanted {wanted}"
        )
    return frame


def read_hot(hot: HotFrame, decode: Callable[[bytes], Frame] = decode_frame) -> Frame | None:
    """The same; None if its bytes are corrupt."""
    try:
        return unpack_hot(hot, decode)
    except FrameError:
        return None


def hot_gap(hot: HotFrame) -> Gap:
    """The gap that a corrupt frame leaves."""
    last_step = hot.first_step + max(hot.num_steps, 1) - 1
    return Gap(hot.first_step, last_step, GapReason.CORRUPT, f"frame {hot.seq}", hot.segment)


def _holds(frame: Frame, stretch: Stretch) -> bool:
    return (
        frame.num_steps > 0
        and frame.first_step <= stretch.last_step
        and frame.last_step >= stretch.first_step
    )


def _unpacking_bytes(hot: HotFrame) -> int:
    """Most memory that it takes while it is unpacked; 0 if its bytes are corrupt."""
    try:
        header, _ = split_frame(hot.body)
    except FrameError:
        return 0
    return unpacking_bytes(len(hot.body), header.block_bytes)


def _hot_parts(found: Sequence[HotFrame], wanted: Wanted) -> Found[Part]:
    decode = decode_metrics if wanted.is_metric else decode_frame
    read: Found[Part] = Found()
    for hot in found:
        frame = read_hot(hot, decode)
        if frame is None:
            read.gaps.append(hot_gap(hot))
            continue
        place = wanted.place(hot.layout_hash, frame.metric_names)
        if place is not None:
            columns = place.columns
            if place.kind is Kind.METRICS:
                values = frame.metrics[:, columns.start - 1 : columns.stop - 1]
            else:
                values = widened(frame.stats[:, columns.start : columns.stop])
            values = np.ascontiguousarray(values)
            read.items.append(Part(hot.seq, hot.first_step, values, place.targets))
    return read


def _laid_over(
    parts: Sequence[Part], num_columns: int, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The values of all parts: where a later frame has a value for a step, it replaces that of an
    earlier one.

    Memory is taken for the steps that the parts hold, however far apart they are: a program may
    count samples or seconds as steps.
    """
    within = [part for part in parts if part.first_step <= last and part.end > first]
    spans = ((max(first, part.first_step), min(last + 1, part.end)) for part in within)
    ranges = [np.arange(*span, dtype=np.int64) for span in _united(spans)]
    steps = np.concatenate([np.empty(0, np.int64), *ranges])
    matrix = np.full((len(steps), num_columns), ABSENT_64)
    for part in sorted(within, key=lambda part: part.seq):
        start, stop = max(first, part.first_step), min(last + 1, part.end)
        rows = part.values[start - part.first_step : stop - part.first_step]
        place = int(np.searchsorted(steps, start))
        under = matrix[place : place + len(rows)]
        if part.targets is None:
            np.copyto(under, rows, where=~is_absent(rows))
        else:
            own = under[:, part.targets]
            under[:, part.targets] = np.where(is_absent(rows), own, rows)
    held = np.flatnonzero(~is_absent(matrix).all(axis=1))
    return steps[held], matrix[held]


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open spans in order, with those that touch or overlap merged."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], stop))
        else:
            united.append((start, stop))
    return united
