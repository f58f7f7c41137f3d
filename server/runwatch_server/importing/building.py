"""Builds a RunLog from a raw log: names mapped, rows in order, values in matrices.

Shapes: N rows, M metrics, S stats, L layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.frames import MAX_METRICS
from runwatch.layouts import MAX_LAYERS, MAX_NAME_BYTES
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Rows
from runwatch_server.importing.arranging import Stretch, arrange
from runwatch_server.importing.epoch_steps import count_on
from runwatch_server.importing.errors import LogError
from runwatch_server.importing.loss_parts import add_up
from runwatch_server.importing.moving_targets import mark
from runwatch_server.importing.printed_digits import note_resolution
from runwatch_server.importing.run_log import Entry, RawLog, RunLog
from runwatch_server.importing.series_names import NameMap, find_epoch, map_names

_MAX_FALLS_SHOWN: Final = 5
"""Limited because a log may go back at every line."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The column of each of a log's series."""

    metrics: Mapping[str, int]
    metric_names: tuple[str, ...]
    stats: Mapping[str, tuple[int, int]]
    stat_names: tuple[str, ...]
    layer_names: tuple[str, ...]


def build(name: str, raw: RawLog) -> RunLog:
    """The run that a log describes. Raises LogError if it describes none."""
    entries, added = add_up(raw.entries)
    entries, marked = mark(entries)
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    name_map = map_names(names)
    _check(entries, names, name_map, raw.notes)
    entries, told, of_digits = note_resolution(entries, name_map.metrics)
    names += told
    name_map = replace(name_map, metrics={**name_map.metrics, **told})
    columns = _lay_out(name_map)
    num_left_out = len(names) - len(columns.metrics) - len(columns.stats)
    entries = _only(entries, columns) if num_left_out else entries
    epoch_name = find_epoch(names)
    entries, of_epochs = count_on(entries, epoch_name, raw.epoch_length)
    arranged = arrange(entries, epoch_name)
    has_times = all(row.at is not None for one in arranged.stretches for row in one.rows)
    notes = [*raw.notes, *added, *marked, *name_map.notes, *of_digits, *of_epochs]
    notes += arranged.notes
    if len(arranged.falls) > _MAX_FALLS_SHOWN:
        notes += arranged.falls[:_MAX_FALLS_SHOWN]
        notes.append(f"and goes back {len(arranged.falls) - _MAX_FALLS_SHOWN} more times")
    else:
        notes += arranged.falls
    if num_left_out:
        notes.append(f"{num_left_out} series are more than a run may have: left out")
    if not has_times:
        notes.append("no times are given: a row counts as a second")
    stretches = _judgeable(arranged.stretches, columns, has_times=has_times)
    return RunLog(name, stretches, tuple(notes), has_times)


def _check(entries: list[Entry], names: list[str], name_map: NameMap, notes: Sequence[str]) -> None:
    if not names:
        found = "; ".join(("found no numbers", *notes[:1]))
        raise LogError("", f"{found}; wanted rows of a training run")
    if not name_map.is_of_training and all(entry.step is None for entry in entries):
        shown = ", ".join(f"'{name}'" for name in names[:8]) + (", ..." if len(names) > 8 else "")
        wanted = "wanted a step, or a series such as loss, grad_norm or lr"
        raise LogError("", f"found no series of a training but {shown}, {wanted}")


def _lay_out(name_map: NameMap) -> _Columns:
    metrics = [
        theirs
        for theirs, ours in name_map.metrics.items()
        if 0 < len(ours.encode()) <= MAX_NAME_BYTES
    ][:MAX_METRICS]
    layers = list(dict.fromkeys(found.layer for found in name_map.stats.values()))[:MAX_LAYERS]
    stats = list(dict.fromkeys(found.stat for found in name_map.stats.values()))
    layer_place = {layer: place for place, layer in enumerate(layers)}
    return _Columns(
        metrics={theirs: place for place, theirs in enumerate(metrics)},
        metric_names=tuple(name_map.metrics[theirs] for theirs in metrics),
        stats={
            theirs: (stats.index(found.stat), layer_place[found.layer])
            for theirs, found in name_map.stats.items()
            if found.layer in layer_place and len(found.layer.encode()) <= MAX_NAME_BYTES
        },
        stat_names=tuple(stats),
        layer_names=tuple(layers),
    )


def _only(entries: list[Entry], columns: _Columns) -> list[Entry]:
    """The entries without series that have no column."""
    return [
        replace(
            entry,
            values={
                name: value
                for name, value in entry.values.items()
                if name in columns.metrics or name in columns.stats
            },
        )
        for entry in entries
    ]


def _judgeable(stretches: list[Stretch], columns: _Columns, *, has_times: bool) -> tuple[Rows, ...]:
    made: list[Rows] = []
    num_before = 0
    for stretch in stretches:
        num_rows = len(stretch.rows)
        times = (
            [row.at or 0.0 for row in stretch.rows]
            if has_times
            else range(num_before, num_before + num_rows)
        )
        made.append(_rows(stretch, columns, np.array(times, np.float64)))
        num_before += num_rows
    return tuple(made)


def _rows(stretch: Stretch, columns: _Columns, times: NDArray[np.float64]) -> Rows:
    absent = float(ABSENT_64)
    theirs = list(columns.metrics)
    metrics_NM = np.array(
        [[row.values.get(name, absent) for name in theirs] for row in stretch.rows], np.float64
    ).reshape(len(stretch.rows), len(theirs))
    shape_NSL = (len(stretch.rows), len(columns.stat_names), len(columns.layer_names))
    stats_NSL = np.full(shape_NSL, ABSENT_32, np.float32)
    with np.errstate(over="ignore"):  # beyond float32 a gradient counts as infinite
        for name, (stat, layer) in columns.stats.items():
            stats_NSL[:, stat, layer] = [row.values.get(name, absent) for row in stretch.rows]
    return Rows(
        steps=np.array([row.step for row in stretch.rows], np.int64),
        times=times,
        metric_names=columns.metric_names,
        metrics=metrics_NM,
        layer_names=columns.layer_names,
        stat_names=columns.stat_names,
        stats=stats_NSL,
        attempt=stretch.attempt,
        segment=stretch.segment,
    )
