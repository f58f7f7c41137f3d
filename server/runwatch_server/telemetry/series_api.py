"""Series and heat maps out, as JSON or CSV."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from numpy.typing import NDArray

from runwatch.frames import MAX_ATTEMPT, MAX_STEP
from runwatch.nonfinite import JsonNumber, to_json_list
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import UnprocessableError
from runwatch_server.http import documented, json_response
from runwatch_server.runs.access import VisibleRunId
from runwatch_server.services import CurrentServices
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.buckets import Buckets
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.reading import Series, Window
from runwatch_server.telemetry.series_export import (
    MEDIA_TYPES,
    Columns,
    SeriesFormat,
    exported,
    format_asked_for,
    with_gaps,
)

_TABLES: Final = [one for one in MEDIA_TYPES.values() if one != MEDIA_TYPES[SeriesFormat.JSON]]

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["telemetry"])


class LayoutColumns(msgspec.Struct, frozen=True):
    hash: str
    layers: tuple[str, ...]
    stats: tuple[str, ...]


class MetricList(msgspec.Struct, frozen=True):
    metrics: list[str]
    layouts: list[LayoutColumns]
    """Oldest first; every layer has every stat of its layout."""


class StretchView(msgspec.Struct, frozen=True):
    attempt: int
    segment: int
    first_step: int
    last_step: int


class GapView(msgspec.Struct, frozen=True):
    """Steps that are stored and could not be read: they have no values in the answer."""

    first_step: int
    last_step: int
    reason: GapReason
    """lost: the object is gone. corrupt: it is not what was written. late: the object store does
    not answer now; ask again."""


class SeriesView(msgspec.Struct, frozen=True, omit_defaults=True):
    run_id: RunId
    name: str
    layer: str | None
    rank: int
    step_width: int
    """1: `values` as recorded. More: `min`, `max`, `mean` of the finite values of so many steps,
    `count` of them, and `nonfinite`, the number of values that were NaN or infinite."""
    stretches: list[StretchView]
    steps: list[int]
    values: list[JsonNumber] | None = None
    min: list[JsonNumber] | None = None
    max: list[JsonNumber] | None = None
    mean: list[JsonNumber] | None = None
    count: list[int] | None = None
    nonfinite: list[int] | None = None
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
    """One list a layer; null: nothing finite was recorded."""
    nonfinite: list[tuple[int, int, int]]
    """(layer, bucket, count) wherever values were NaN or infinite."""
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
    """One list a rank; null: nothing finite was recorded."""
    nonfinite: list[tuple[int, int, int]]
    """(place in `ranks`, bucket, count) wherever values were NaN or infinite."""
    gaps: list[GapView] = []
    """Of any rank; left out where there are none."""


def _window(
    rank: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)] = 0,
    first_step: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
    points: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_ATTEMPT)] = None,
    segment: Annotated[int | None, Query(ge=0, le=MAX_ATTEMPT)] = None,
) -> Window:
    return Window(
        rank=rank,
        first_step=first_step,
        last_step=last_step,
        points=points,
        attempt=attempt,
        segment=segment,
    )


Aggregate = Literal["max", "mean", "min"]
AskedWindow = Annotated[Window, Depends(_window)]


@router.get(
    "/metrics",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=MetricList),
)
async def get_metrics(services: CurrentServices, run_id: VisibleRunId) -> Response:
    """What there is to read: names of metrics, layers and stats."""
    async with services.database.read() as connection:
        names = await queries.list_metrics(connection, run_id)
    layouts = await services.layouts.all(run_id)
    columns = [LayoutColumns(lay.hash, lay.layer_names, lay.stats) for lay in layouts]
    return json_response(MetricList(names, columns))


@router.get(
    "/series",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=SeriesView, texts=_TABLES),
)
async def get_series(
    request: Request,
    services: CurrentServices,
    run_id: VisibleRunId,
    window: AskedWindow,
    metric: str | None = None,
    layer: str | None = None,
    stat: str | None = None,
    format: SeriesFormat | None = None,
) -> Response:
    """One series: `metric=`, or `layer=` and `stat=`; values as recorded where they fit into
    `points`, else summed up. The run's effective history, or what `attempt=` or `segment=` held.
    JSON, CSV, Arrow or Parquet: by `format`, or else by the header Accept. Tables have a column
    `gap` where steps could not be read: its reason, at the first and the last of them."""
    if metric is not None and layer is None and stat is None:
        series = await services.reader.metric_series(run_id, metric, window)
    elif metric is None and layer is not None and stat is not None:
        series = await services.reader.layer_series(run_id, layer, stat, window)
    else:
        raise UnprocessableError("invalid_request", "query: wanted metric=, or layer= and stat=")
    view = await asyncio.to_thread(
        _series_view, run_id, metric or stat or "", layer, window, series
    )
    kind = format_asked_for(format, request.headers.get("Accept", ""))
    if kind is SeriesFormat.JSON:
        return json_response(view)
    columns = with_gaps(_export_columns(view), series.gaps)
    table = await asyncio.to_thread(exported, columns, kind)
    return Response(table, media_type=MEDIA_TYPES[kind])


@router.get(
    "/heatmap",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=HeatmapView),
)
async def get_heatmap(
    services: CurrentServices,
    run_id: VisibleRunId,
    window: AskedWindow,
    stat: str,
    aggregate: Aggregate = "max",
) -> Response:
    """One stat of all layers over steps; `points` is the number of buckets. The layers are those
    of the newest layout, and those of older ones of which these steps hold anything."""
    layers, series = await services.reader.all_layers(run_id, stat, window)
    view = await asyncio.to_thread(
        _heatmap_view, run_id, stat, aggregate, window.rank, layers, series
    )
    return json_response(view)


@router.get(
    "/ranks", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RanksView)
)
async def get_ranks(
    services: CurrentServices,
    run_id: VisibleRunId,
    metric: str,
    first_step: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
    points: Annotated[int, Query(ge=1, le=10_000)] = 500,
    aggregate: Aggregate = "mean",
) -> Response:
    """One metric of all ranks over steps, at most 1024 of them; `points` is the number of
    buckets."""
    window = Window(first_step=first_step, last_step=last_step, points=points)
    ranks, buckets, width, gaps = await services.reader.all_ranks(run_id, metric, window)
    values, nonfinite = await asyncio.to_thread(_cells, buckets, aggregate)
    return json_response(
        RanksView(
            run_id=run_id,
            metric=metric,
            aggregate=aggregate,
            step_width=width,
            ranks=ranks,
            steps=buckets.steps.tolist(),
            values=values,
            nonfinite=nonfinite,
            gaps=_gap_views(gaps),
        )
    )


def _series_view(
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
        "gaps": _gap_views(series.gaps),
    }
    if series.values is not None:
        return msgspec.convert(facts | {"values": to_json_list(series.values[:, 0])}, SeriesView)
    buckets = series.buckets
    numbers = {
        "min": to_json_list(np.ascontiguousarray(buckets.low[:, 0])),
        "max": to_json_list(np.ascontiguousarray(buckets.high[:, 0])),
        "mean": to_json_list(np.ascontiguousarray(buckets.mean[:, 0])),
        "count": buckets.count[:, 0].tolist(),
        "nonfinite": buckets.nonfinite[:, 0].tolist(),
    }
    return msgspec.convert(facts | numbers, SeriesView)


def _heatmap_view(
    run_id: RunId,
    stat: str,
    aggregate: Aggregate,
    rank: int,
    layers: tuple[str, ...],
    series: Series,
) -> HeatmapView:
    values, nonfinite = _cells(series.buckets, aggregate)
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
        gaps=_gap_views(series.gaps),
    )


def _cells(
    buckets: Buckets, aggregate: Aggregate
) -> tuple[list[list[JsonNumber]], list[tuple[int, int, int]]]:
    """What a picture needs of buckets: values column by column, and (column, bucket, count)
    wherever there were values that are no finite number."""
    cells = {"max": buckets.high, "mean": buckets.mean, "min": buckets.low}[aggregate]
    places = np.argwhere(buckets.nonfinite.T > 0)
    counts = buckets.nonfinite.T[buckets.nonfinite.T > 0]
    broken = [
        (int(column), int(bucket), int(count))
        for (column, bucket), count in zip(places, counts, strict=True)
    ]
    return [_nullable(column) for column in cells.T], broken


def _nullable(values: NDArray[np.floating]) -> list[JsonNumber]:
    """A column's cells, shortened to what a colour can show."""
    numbers: list[JsonNumber] = values.astype(np.float32).astype(np.float64).tolist()
    for index in np.flatnonzero(np.isnan(values)):
        numbers[index] = None
    return numbers


def _export_columns(view: SeriesView) -> Columns:
    columns: dict[str, list[JsonNumber] | list[int]] = {"step": view.steps}
    for name in ("values", "min", "max", "mean", "count", "nonfinite"):
        column: list[JsonNumber] | list[int] | None = getattr(view, name)
        if column is not None:
            columns["value" if name == "values" else name] = column
    return columns


def _stretch_view(stretch: Stretch) -> StretchView:
    return StretchView(stretch.attempt, stretch.segment, stretch.first_step, stretch.last_step)


def _gap_views(gaps: Sequence[Gap]) -> list[GapView]:
    return [GapView(gap.first_step, gap.last_step, gap.reason) for gap in gaps]
