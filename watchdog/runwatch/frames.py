"""Consecutive steps of one rank, sent together under one sequence number."""

import math
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.errors import FrameError
from runwatch.histograms import Histograms
from runwatch.layouts import MAX_NAME_BYTES, Layout

MAX_STEPS: Final = 4096
MAX_METRICS: Final = 512
MAX_EVENTS: Final = 1024
MAX_HISTOGRAMS: Final = 256
"""Parts, of any kind and step."""
MAX_STEP: Final = 2**53
"""Steps stay exact in a float64, and so in JSON and in a chart."""
MAX_ATTEMPT: Final = 2**31 - 1
"""Of attempts and segments: what the columns of the service hold."""
MAX_RANK: Final = 2**24

END_OF_TIME: Final = 253_402_300_800
"""The year 10000 in Unix seconds: what is given for a time beyond is in other units."""

Scalar = float | int | str | bool | None


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happened inside the trainer, at its place among the steps."""

    step: int
    """-1: before the first."""
    kind: str
    """`phase`, `checkpoint`, `checkpoint_good`, `rollback`, `lr_scale`, `gap`, `clock`,
    `host`, ..."""
    at: float
    """Unix time in seconds by the trainer's clock; for display, never for a deadline."""
    detail: dict[str, Scalar | list[str]] = {}
    """What more there is to say, by its kind."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame with its values unpacked.

    Shapes: N steps, M metrics, C columns of the layout. A value may be NaN, infinite, or
    'not recorded' (`nonfinite.is_absent`).
    """

    attempt: int
    rank: int
    seq: int
    """Starts at 1 and grows by one with each frame of an attempt's rank."""
    segment: int
    """Starts at 0 and grows by one with each rollback of the attempt."""
    first_step: int
    times: NDArray[np.float64]
    """(N,) Unix seconds at the end of each step, by the trainer's clock."""
    metric_names: tuple[str, ...] = ()
    metrics: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """(N, M)"""
    layout_hash: str = ""
    """Hash of the `Layout` that names the columns of `stats`; empty where there are none."""
    stats: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """(N, C)"""
    events: tuple[Event, ...] = ()
    histograms: tuple[Histograms, ...] = ()
    lost: int = 0
    """How many frames right before this one its sender has no more, and never will send."""

    def __post_init__(self) -> None:
        _check_range("attempt", self.attempt, 0, MAX_ATTEMPT)
        _check_range("rank", self.rank, 0, MAX_RANK)
        _check_range("seq", self.seq, 1, MAX_STEP)
        _check_range("lost", self.lost, 0, self.seq - 1)
        _check_range("segment", self.segment, 0, MAX_ATTEMPT)
        _check_range("first_step", self.first_step, 0, MAX_STEP)
        _check_range("number of steps", self.num_steps, 0, MAX_STEPS)
        _check_range("number of events", len(self.events), 0, MAX_EVENTS)
        _check_range("number of histograms", len(self.histograms), 0, MAX_HISTOGRAMS)
        self._check_metrics()
        self._check_stats()

    @property
    def num_steps(self) -> int:
        return len(self.times)

    @property
    def last_step(self) -> int:
        """The last step held; `first_step` where the frame holds only events."""
        return self.first_step + max(self.num_steps, 1) - 1

    @property
    def num_bytes(self) -> int:
        """Memory that its numbers take."""
        return self.times.nbytes + self.metrics.nbytes + self.stats.nbytes

    def stat(self, layout: Layout, name: str) -> NDArray[np.float32]:
        """One stat over all layers, shape (N, layers)."""
        start = layout.stats.index(name) * len(layout.layers)
        return self.stats[:, start : start + len(layout.layers)]

    def check_not_empty(self) -> None:
        """Raises FrameError for one that says nothing: nobody sends such a frame. One may be stored
        so, whose histograms lie elsewhere."""
        if not (self.num_steps or self.events or self.histograms):
            raise FrameError("frame: found no step and no event, wanted at least one")

    def check_arrival(self) -> None:
        """Raises FrameError for a time that no calendar has (milliseconds, most likely), and for
        steps, of rows or of an event, that there cannot be: no command could name them. Asked of
        what comes in; what is stored already is read all the same."""
        _check_range("last step", self.last_step, 0, MAX_STEP)
        for at in (self.times.min(initial=0.0), self.times.max(initial=0.0)):
            _check_time("times", float(at))
        for event in self.events:
            _check_range(f"event {event.kind!r}: step", event.step, -1, MAX_STEP)
            _check_time(f"event {event.kind!r}", event.at)

    def check_layout(self, layout: Layout) -> None:
        """Raises FrameError unless the columns are those of this layout."""
        if self.stats.shape[1] != layout.num_columns:
            raise FrameError(
                f"stats: found {self.stats.shape[1]} columns, wanted {layout.num_columns} "
                f"({len(layout.layers)} layers x {len(layout.stats)} stats)"
            )

    def _check_metrics(self) -> None:
        _check_range("number of metrics", len(self.metric_names), 0, MAX_METRICS)
        if len(set(self.metric_names)) != len(self.metric_names):
            raise FrameError("metrics: found a name twice, wanted every name once")
        for name in self.metric_names:
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
                raise FrameError(
                    f"metrics: found a name of {len(name.encode())} bytes, "
                    f"wanted 1 to {MAX_NAME_BYTES}"
                )
        _check_shape("metrics", self.metrics, self.num_steps, len(self.metric_names))
        if not np.isfinite(self.times).all():
            raise FrameError("times: found a value that is not finite, wanted Unix seconds")

    def _check_stats(self) -> None:
        _check_shape("stats", self.stats, self.num_steps, self.stats.shape[-1])
        if bool(self.layout_hash) != bool(self.stats.size):
            raise FrameError(
                f"layout: found {self.layout_hash!r} with {self.stats.size} values, "
                "wanted a hash where there are values and none where there are none"
            )


def _check_range(place: str, number: int, lowest: int, highest: int) -> None:
    if not lowest <= number <= highest:
        raise FrameError(f"{place}: found {number}, wanted {lowest} to {highest}")


def _check_shape(
    place: str, values: NDArray[np.float64] | NDArray[np.float32], rows: int, columns: int
) -> None:
    if values.size == 0 and rows * columns == 0:
        return
    if values.shape != (rows, columns):
        wanted = f"{rows} x {columns}"
        raise FrameError(f"{place}: found shape {values.shape}, wanted {wanted}")


def _check_time(place: str, at: float) -> None:
    if not 0 <= at < END_OF_TIME:
        raise FrameError(f"{place}: found {at:g}, wanted Unix seconds from 1970 to the year 9999")


def check_event_time(event: Event) -> None:
    """Raises FrameError where an event's time is no time."""
    if not math.isfinite(event.at):
        raise FrameError(f"event {event.kind!r}: found time {event.at}, wanted Unix seconds")
