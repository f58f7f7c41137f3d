"""Series, as JSON or as tables, heat maps, and one metric across ranks."""

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from runwatch.frames import MAX_ATTEMPT, MAX_STEP
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import UnprocessableError
from runwatch_server.runs.access import VisibleRunId
from runwatch_server.services import CurrentServices
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.left_out import with_left_out, with_left_out_layers
from runwatch_server.telemetry.reading import Window
from runwatch_server.telemetry.series_export import (
    MEDIA_TYPES,
    SeriesFormat,
    exported,
    format_asked_for,
    with_gaps,
)
from runwatch_server.telemetry.series_views import (
    Aggregate,
    HeatmapView,
    RanksView,
    SeriesView,
    cells_of,
    columns_of,
    gap_views,
    heatmap_view,
    series_view,
)
from runwatch_server.web.bodies import documented, json_response
from runwatch_server.web.parameters import check_span

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


def _window(
    rank: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)] = 0,
    first_step: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
    points: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_ATTEMPT)] = None,
    segment: Annotated[int | None, Query(ge=0, le=MAX_ATTEMPT)] = None,
) -> Window:
    check_span(first_step, last_step)
    return Window(
        rank=rank,
        first_step=first_step,
        last_step=last_step,
        points=points,
        attempt=attempt,
        segment=segment,
    )


AskedWindow = Annotated[Window, Depends(_window)]


@router.get(
    "/metrics",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=MetricList),
)
async def get_metrics(services: CurrentServices, run_id: VisibleRunId) -> Response:
    """The names of the run's metrics, layers and stats."""
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
    """One series: `metric=`, or `layer=` and `stat=`. Values are as recorded if they fit into
    `points`, else aggregated into buckets. The steps are those of the run's effective history, or
    of `attempt=` or `segment=`. The answer is JSON, CSV, Arrow or Parquet, by `format` or else by
    the header Accept. Tables get a column `nonfinite` if values leave out elements that were NaN or
    infinite (1 where one does), and a column `gap` if steps could not be read, with the reason at
    the first and the last of them."""
    if metric is not None and layer is None and stat is None:
        series = await services.reader.metric_series(run_id, metric, window)
    elif metric is None and layer is not None and stat is not None:
        series = await services.reader.layer_series(run_id, layer, stat, window)
        series = await with_left_out(services.reader, run_id, layer, stat, window, series)
    else:
        raise UnprocessableError("invalid_request", "query: wanted metric=, or layer= and stat=")
    view = await asyncio.to_thread(series_view, run_id, metric or stat or "", layer, window, series)
    kind = format_asked_for(format, request.headers.get("Accept", ""))
    if kind is SeriesFormat.JSON:
        return json_response(view)
    columns = with_gaps(columns_of(view), series.gaps)
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
    """One stat of all layers over steps; `points` is the number of buckets, of which there are
    fewer if all layers together would have more than 2 million. The layers are those
    of the newest layout, and those of older layouts that have values in these steps."""
    layers, series = await services.reader.all_layers(run_id, stat, window)
    series = await with_left_out_layers(services.reader, run_id, layers, stat, window, series)
    view = await asyncio.to_thread(
        heatmap_view, run_id, stat, aggregate, window.rank, layers, series
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
    """One metric of all ranks (at most 1024) over steps; `points` is the number of buckets."""
    check_span(first_step, last_step)
    window = Window(first_step=first_step, last_step=last_step, points=points)
    ranks, buckets, width, gaps = await services.reader.all_ranks(run_id, metric, window)
    values, nonfinite = await asyncio.to_thread(cells_of, buckets, aggregate)
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
            gaps=gap_views(gaps),
        )
    )
