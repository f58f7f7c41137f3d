"""Reads a run's stored steps as the rows that rules judge, with only the series that they use.

Legend: N rows, S stats, L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Rows, Rule
from runwatch.rules.objectives import objective_names
from runwatch.rules.observations import rule_name
from runwatch.rules.recorded_names import RecordedNames
from runwatch.rules.thresholds import (
    looks_across_layers,
    rows_before,
    rows_of_start,
    series_needed,
)
from runwatch.series import STATS
from runwatch.vocabulary import RunId
from runwatch_server.services import Services
from runwatch_server.telemetry import queries, segment_queries
from runwatch_server.telemetry.layer_union import columns_among
from runwatch_server.telemetry.reading import Series, Window


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that are read for each row."""

    metrics: tuple[str, ...]
    stats: tuple[str, ...]
    layers: tuple[str, ...]
    is_all_layers: bool


async def recorded_names(services: Services, run_id: RunId) -> RecordedNames:
    """Under which names a run records the series that rules read."""
    async with services.database.read() as connection:
        return RecordedNames.of(await queries.list_metrics(connection, run_id))


async def read_rows(
    services: Services,
    run_id: RunId,
    rules: Sequence[Rule],
    layer: str | None,
    first_step: int,
    last_step: int,
    recorded: RecordedNames,
) -> Rows:
    """The rows that the rules read, from as far back as fills their windows, preceded by the first
    rows of the attempt if a rule remembers them. `layer` is the layer that is judged, if any."""
    columns = await _columns(services, run_id, rules, layer, recorded)
    start = max(0, first_step - max(map(rows_before, rules), default=0))
    parts = [await _read(services, run_id, columns, _steps(start, last_step))]
    opening = await _opening(services, run_id, rules, start)
    if opening is not None:
        parts.insert(0, await _read(services, run_id, columns, opening))
    return recorded.put_on(_joined(parts))


def ends(name: str, layer: str | None, first_step: int, last_step: int) -> Rows:
    """Two rows, for a threshold that is the same at all steps."""
    is_metric = layer is None
    return _rows(
        np.array([first_step, max(last_step, first_step)]),
        _Columns(
            (name,) if is_metric else (),
            () if is_metric else (name,),
            () if layer is None else (layer,),
            is_all_layers=False,
        ),
        np.zeros((2, int(is_metric))),
        np.zeros((2, int(not is_metric), int(not is_metric)), np.float32),
    )


async def _columns(
    services: Services,
    run_id: RunId,
    rules: Sequence[Rule],
    layer: str | None,
    recorded: RecordedNames,
) -> _Columns:
    names = frozenset(name for rule in rules for name in series_needed(rule))
    known = tuple(recorded.seen)
    told = set(objective_names(known))  # windows start afresh where these change
    metrics = tuple(
        metric
        for metric in known
        if not names.isdisjoint((rule_name(metric), recorded.name_of(metric))) or metric in told
    )
    layout = await _layout_of(services, run_id, layer)
    if layer is None:
        return _Columns(metrics, (), (), is_all_layers=False)
    if layout is None:  # the run has no such layer: nothing is known of it
        return _Columns(metrics, (), (layer,), is_all_layers=False)
    is_all = any(map(looks_across_layers, rules))
    stats = tuple(stat for stat in layout.stats if stat in names & STATS)
    return _Columns(metrics, stats, layout.layer_names if is_all else (layer,), is_all)


async def _layout_of(services: Services, run_id: RunId, layer: str | None) -> Layout | None:
    """The newest layout that has the layer, which later ones may lack."""
    layouts = await services.layouts.all(run_id) if layer is not None else []
    return next((one for one in reversed(layouts) if layer in one.layer_names), None)


async def _opening(
    services: Services, run_id: RunId, rules: Sequence[Rule], before: int
) -> Window | None:
    """The first steps of the attempt that is in force at a step, up to that step; None if no rule
    uses them."""
    num_rows = max(map(rows_of_start, rules), default=0)
    if num_rows == 0:
        return None
    async with services.database.read() as connection:
        segments = await segment_queries.list_segments(connection, run_id, 0)
    holding = [row for row in segments if row.first_step < before]
    if not holding:
        return None
    attempt = max(row.attempt for row in holding)
    first_step = min(row.first_step for row in holding if row.attempt == attempt)
    return _steps(first_step, min(first_step + num_rows, before) - 1, attempt=attempt)


def _steps(first_step: int, last_step: int, *, attempt: int | None = None) -> Window:
    """A window with one bucket per step."""
    return Window(
        first_step=first_step,
        last_step=last_step,
        points=last_step - first_step + 1,
        attempt=attempt,
    )


async def _read(services: Services, run_id: RunId, columns: _Columns, window: Window) -> Rows:
    reader = services.reader
    metrics = [await reader.metric_series(run_id, name, window) for name in columns.metrics]
    stats: list[Series] = []
    for stat in columns.stats:
        if columns.is_all_layers:
            names, series = await reader.all_layers(run_id, stat, window)
            series = series.columns(columns_among(names, columns.layers))
        else:
            series = await reader.layer_series(run_id, columns.layers[0], stat, window)
        stats.append(series)
    found = [one.buckets.steps for one in (*metrics, *stats)]
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
    metrics_NM = np.full((len(steps), len(metrics)), ABSENT_64)
    for index, series in enumerate(metrics):
        _lay(metrics_NM[:, index : index + 1], steps, series)
    stats_NSL = np.full((len(steps), len(stats), len(columns.layers)), ABSENT_32)
    for index, series in enumerate(stats):
        _lay(stats_NSL[:, index], steps, series)
    return _rows(steps, columns, metrics_NM, stats_NSL)


def _lay(
    target_NC: NDArray[np.float64] | NDArray[np.float32], steps: NDArray[np.int64], series: Series
) -> None:
    """Write a series' values at the rows of their steps; a series that came aggregated has none."""
    if series.values is not None:
        target_NC[np.searchsorted(steps, series.buckets.steps)] = series.values


def _joined(parts: Sequence[Rows]) -> Rows:
    """The parts one after another."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Rows(
        steps=np.concatenate([part.steps for part in parts]),
        times=np.concatenate([part.times for part in parts]),
        metric_names=first.metric_names,
        metrics=np.concatenate([part.metrics for part in parts]),
        layer_names=first.layer_names,
        stat_names=first.stat_names,
        stats=np.concatenate([part.stats for part in parts]),
    )


def _rows(
    steps: NDArray[np.int64],
    columns: _Columns,
    metrics_NM: NDArray[np.float64],
    stats_NSL: NDArray[np.float32],
) -> Rows:
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=columns.metrics,
        metrics=metrics_NM,
        layer_names=columns.layers,
        stat_names=columns.stats,
        stats=stats_NSL,
    )
