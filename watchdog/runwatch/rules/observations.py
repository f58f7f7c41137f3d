"""What a rule is judged on: one rank's rows, with what each of them recorded."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.frames import Event, Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.omissions import OMISSION, Omission

WAITS: Final = -1
"""For the step of the next row."""


@dataclass(frozen=True, slots=True)
class Named:
    """What an event says of a metric that only counts."""

    step: int
    """Of the row at which it counts, or WAITS."""
    metric: str
    topic: str
    """A newer event stands for an older one of the same metric and topic."""
    words: str
    layers: tuple[str, ...] = ()
    """The layers that the metric counts, or some of them."""
    num_layers: int = 0


@dataclass(frozen=True, eq=False)
class Rows:
    """One rank's observations, in order, of one attempt and one segment.

    Shapes: N rows, M metrics, S stats, L layers. 'Not recorded' is `nonfinite.ABSENT_64` among
    the metrics and `nonfinite.ABSENT_32` among the stats. Two rows may bear one step: a
    validation loss often comes alone, after its step.
    """

    steps: NDArray[np.int64]
    """(N,) never falling"""
    times: NDArray[np.float64]
    """(N,) Unix seconds"""
    metric_names: tuple[str, ...]
    metrics: NDArray[np.float64]
    """(N, M)"""
    layer_names: tuple[str, ...]
    stat_names: tuple[str, ...]
    stats: NDArray[np.float32]
    """(N, S, L)"""
    attempt: int = 1
    segment: int = 0
    rank: int = 0
    unplaced: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many counted events came of each kind, where there is no row to count them in."""
    named: tuple[Named, ...] = ()
    """In the order in which they were told."""
    output_sizes: tuple[int, ...] = ()
    """See `Layout.output_sizes`."""
    layer_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many elements each layer has, as far as that is known."""
    known_as: Mapping[str, str] = field(default_factory=dict[str, str])
    """The program's names of metrics that bear ours (see `recorded_names`)."""

    @property
    def num_rows(self) -> int:
        return len(self.steps)

    @cached_property
    def metric_columns(self) -> Mapping[str, int]:
        columns = columns_by_name(self.metric_names)
        for ours, theirs in self.known_as.items():
            for name in (theirs, rule_name(theirs)):
                columns.setdefault(name, columns[ours])
        return columns

    @cached_property
    def stat_columns(self) -> Mapping[str, int]:
        return columns_by_name(self.stat_names)

    def between(self, start: int, stop: int) -> "Rows":
        """The rows from `start` to before `stop`."""
        return Rows(
            steps=self.steps[start:stop],
            times=self.times[start:stop],
            metric_names=self.metric_names,
            metrics=self.metrics[start:stop],
            layer_names=self.layer_names,
            stat_names=self.stat_names,
            stats=self.stats[start:stop],
            attempt=self.attempt,
            segment=self.segment,
            rank=self.rank,
            named=self.named,
            output_sizes=self.output_sizes,
            layer_sizes=self.layer_sizes,
            known_as=self.known_as,
        )

    @classmethod
    def from_frame(cls, frame: Frame, layout: Layout | None) -> "Rows":
        """The rows of a frame; `layout` names its columns, and is None where it has none.

        Raises FrameError where the columns are not those of the layout.
        """
        num_steps = frame.num_steps
        metrics = frame.metrics.reshape(num_steps, len(frame.metric_names))
        counted, counts = _counted_events(frame)
        layer_names: tuple[str, ...] = ()
        stat_names: tuple[str, ...] = ()
        stats = np.empty((num_steps, 0, 0), np.float32)
        if layout is not None and frame.stats.size:
            frame.check_layout(layout)
            layer_names, stat_names = layout.layer_names, layout.stats
            stats = frame.stats.reshape(num_steps, len(stat_names), len(layer_names))
        return cls(
            steps=np.arange(frame.first_step, frame.first_step + num_steps, dtype=np.int64),
            times=frame.times,
            metric_names=(*frame.metric_names, *counted),
            metrics=np.concatenate([metrics, counts], axis=1) if counted else metrics,
            layer_names=layer_names,
            stat_names=stat_names,
            stats=stats,
            attempt=frame.attempt,
            segment=frame.segment,
            rank=frame.rank,
            unplaced={} if num_steps else _numbers_of(frame.events),
            named=_named_in(frame),
            output_sizes=() if layout is None else layout.output_sizes,
            layer_sizes={} if layout is None else layout.sizes,
        )


_COUNTED_EVENTS: Final = {
    "unwatched": "unwatched",
    "unheeded": "unheeded",
    "hook_fault": "hook_faults",
    "gap": "rows_lost",
    "clock": "clock_off",
}
"""Kinds of event that rules read, and so may alert on, with the names of their counts. Every other
kind, such as one that a newer trainer sends, is on the timeline only."""


def _counted_events(frame: Frame) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """(N, E) how many events of a kind came at each row, not recorded where none did. One whose
    step the frame does not hold counts at the nearest row."""
    names = tuple(_numbers_of(frame.events))
    counts = np.full((frame.num_steps, len(names)), ABSENT_64)
    for event in frame.events if frame.num_steps else ():
        if (name := _count_of(event)) is None:
            continue
        row = _row_of(event, frame) - frame.first_step
        column = names.index(name)
        before = 0.0 if is_absent(counts[[row], column])[0] else counts[row, column]
        counts[row, column] = before + 1.0
    return names, counts


def _numbers_of(events: Iterable[Event]) -> dict[str, int]:
    """How many of the events are of each kind that rules read, by the names of their counts."""
    names = (_count_of(event) for event in events)
    return dict(Counter(name for name in names if name is not None))


def _row_of(event: Event, frame: Frame) -> int:
    """The step at which an event counts: its own, or the nearest that the frame holds."""
    if not frame.num_steps:
        return WAITS
    return min(max(event.step, frame.first_step), frame.last_step)


_NOTICES: Final = ("unwatched", "unheeded")
"""Kinds of event that are a sentence, and that rules count."""
_NOTICE_CHARS: Final = 300
"""Of such a sentence, whatever a trainer sends: alerts and messages hold it."""


def _named_in(frame: Frame) -> tuple[Named, ...]:
    told = (_named_by(event, _row_of(event, frame)) for event in frame.events)
    return tuple(one for one in told if one is not None)


def _named_by(event: Event, step: int) -> Named | None:
    if event.kind in _NOTICES and isinstance(what := event.detail.get("what"), str):
        return Named(step, event.kind, what, what[:_NOTICE_CHARS])
    omission = Omission.of_detail(event.detail) if event.kind == OMISSION else None
    if omission is None:
        return None
    layers, num_layers = omission.layers, omission.num_layers
    return Named(step, omission.metric, omission.why, omission.words, layers, num_layers)


def _count_of(event: Event) -> str | None:
    """The count that an event adds to; None if rules do not read it. A gap of events alone lost no
    row. One in which nothing is counted comes of a damaged record, which may have held rows."""
    lost_rows, lost_events = event.detail.get("lost_rows"), event.detail.get("lost_events")
    if event.kind == "gap" and lost_rows == 0 and lost_events:
        return None
    return _COUNTED_EVENTS.get(event.kind)


def columns_by_name(names: tuple[str, ...]) -> dict[str, int]:
    """Column of each name, also under the form in which a rule can write it (`eval/loss` as
    `eval_loss`, `lr.1` as `lr_1`). An exact name goes before one that was made to fit."""
    columns = {rule_name(name): column for column, name in reversed(list(enumerate(names)))}
    columns.update({name: column for column, name in enumerate(names)})
    return columns


def rule_name(name: str) -> str:
    """A series' name as a rule writes it: what is no letter, digit or underscore becomes one."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)
