"""The JSON answers for series, heat maps and ranks."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.nonfinite import JsonNumber, to_json_list
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.buckets import Buckets
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.reading import Series, Window
from runwatch_server.telemetry.series_export import Columns

Aggregate = Literal["max", "mean", "min"]
"""Which aggregate of several steps a cell shows."""


class StretchView(msgspec.Struct, frozen=True):
    attempt: int
    segment: int
    first_step: int
    last_step: int


class GapView(msgspec.Struct, frozen=True):
    """Stored steps that could not be read: they have no values in the answer."""

    first_step: int
    last_step: int
    reason: GapReason
    """lost: the object is gone. corrupt: its bytes are not those that were written. late: the
    object store does not answer now; try again."""


class SeriesView(msgspec.Struct, frozen=True, omit_defaults=True):
    run_id: RunId
    name: str
    layer: str | None
    rank: int
    step_width: int
    """1: `values` has the values as recorded. More: buckets of this many steps, with `min`, `max`,
    `mean` and `count` of the finite values, and `nonfinite`: the number of values that were NaN or
    infinite, or that leave out such elements, as a norm does (a lower bound for several steps)."""
    stretches: list[StretchView]
    steps: list[int]
    values: list[JsonNumber] | None = None
    min: list[JsonNumber] | None = None
    max: list[JsonNumber] | None = None
    mean: list[JsonNumber] | None = None
    count: list[int] | None = None
    nonfinite: list[int] | None = None
    left_out: list[int] = []
    """With a `step_width` of 1: steps whose value is finite only because NaN or infinite elements
    are not part of it. The field is left out if there are none."""
    gaps: list[GapView] = []
    """Left out where there are none."""


class HeatmapView(msgspec.Struct, frozen=True, omit_defaults=True):
    run_id: RunId
    stat: str
    aggregate: str
    rank: int
    step_width: int
    layers: tuple[str, ...]
    steps: list[int]
    values: list[list[JsonNumber]]
    """One list per layer; null: nothing finite was recorded."""
    nonfinite: list[tuple[int, int, int]]
    """(layer, bucket, count) wherever values were NaN or infinite, or leave out such elements; a
    lower bound for buckets of several steps."""
    gaps: list[GapView] = []
    """Left out where there are none."""


class RanksView(msgspec.Struct, frozen=True, omit_defaults=True):
    run_id: RunId
    metric: str
    aggregate: str
    step_width: int
    ranks: list[int]
    steps: list[int]
    values: list[list[JsonNumber]]
    """One list per rank; null: nothing finite was recorded."""
    nonfinite: list[tuple[int, int, int]]
    """(index in `ranks`, bucket, count) wherever values were NaN or infinite."""
    gaps: list[GapView] = []
    """Gaps of any rank; the field is left out if there are none."""


def series_view(
    run_id: RunId, name: str, layer: str | None, window: Window, series: Series
) -> SeriesView:
    facts = {
        "run_id": run_id,
        "name": name,
        "layer": layer,
        "rank": window.rank,
        "step_width": series.width,
        "stretches": [_stretch_view(stretch) for stretch in series.stretches],
        "steps": series.buckets.steps.tolist(),
        "gaps": gap_views(series.gaps),
    }
    buckets = series.buckets
    if series.values is not None:
        values = series.values[:, 0]
        left_out = buckets.steps[(buckets.nonfinite[:, 0] > 0) & np.isfinite(values)].tolist()
        told = {"values": to_json_list(values), "left_out": left_out}
        return msgspec.convert(facts | told, SeriesView)
    numbers = {
        "min": to_json_list(np.ascontiguousarray(buckets.low[:, 0])),
        "max": to_json_list(np.ascontiguousarray(buckets.high[:, 0])),
        "mean": to_json_list(np.ascontiguousarray(buckets.mean[:, 0])),
        "count": buckets.count[:, 0].tolist(),
        "nonfinite": buckets.nonfinite[:, 0].tolist(),
    }
    return msgspec.convert(facts | numbers, SeriesView)


def heatmap_view(
    run_id: RunId,
    stat: str,
    aggregate: Aggregate,
    rank: int,
    layers: tuple[str, ...],
    series: Series,
) -> HeatmapView:
    values, nonfinite = cells_of(series.buckets, aggregate)
    return HeatmapView(
        run_id=run_id,
        stat=stat,
        aggregate=aggregate,
        rank=rank,
        step_width=series.width,
        layers=layers,
        steps=series.buckets.steps.tolist(),
        values=values,
        nonfinite=nonfinite,
        gaps=gap_views(series.gaps),
    )


def cells_of(
    buckets: Buckets, aggregate: Aggregate
) -> tuple[list[list[JsonNumber]], list[tuple[int, int, int]]]:
    """The cells of a heat map: values column by column, and (column, bucket, count) wherever there
    were values that are NaN or infinite."""
    cells = {"max": buckets.high, "mean": buckets.mean, "min": buckets.low}[aggregate]
    places = np.argwhere(buckets.nonfinite.T > 0)
    counts = buckets.nonfinite.T[buckets.nonfinite.T > 0]
    broken = [
        (int(column), int(bucket), int(count))
        for (column, bucket), count in zip(places, counts, strict=True)
    ]
    return [_nullable(column) for column in cells.T], broken


def _nullable(values: NDArray[np.floating]) -> list[JsonNumber]:
    """A column's cells, rounded to what a colour can show, except those out of float32's range."""
    with np.errstate(over="ignore"):
        shortened = values.astype(np.float32).astype(np.float64)
    numbers: list[JsonNumber] = np.where(np.isinf(shortened), values, shortened).tolist()
    for index in np.flatnonzero(np.isnan(values)):
        numbers[index] = None
    return numbers


def columns_of(view: SeriesView) -> Columns:
    """The view as a table: its steps and their values. Values as recorded get a column `nonfinite`
    if some of them leave out elements: 1 where one does, or is not finite itself."""
    columns: dict[str, list[JsonNumber] | list[int]] = {"step": view.steps}
    for name in ("values", "min", "max", "mean", "count", "nonfinite"):
        column: list[JsonNumber] | list[int] | None = getattr(view, name)
        if column is not None:
            columns["value" if name == "values" else name] = column
    if view.values is not None and view.left_out:
        left_out = frozenset(view.left_out)
        told = zip(view.steps, view.values, strict=True)
        columns["nonfinite"] = [int(step in left_out or isinstance(v, str)) for step, v in told]
    return columns


def _stretch_view(stretch: Stretch) -> StretchView:
    return StretchView(stretch.attempt, stretch.segment, stretch.first_step, stretch.last_step)


def gap_views(gaps: Sequence[Gap]) -> list[GapView]:
    return [GapView(gap.first_step, gap.last_step, gap.reason) for gap in gaps]
