"""`/runs/{run_id}/histograms`: the distribution of a layer's elements by magnitude."""

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from runwatch.frames import MAX_ATTEMPT, MAX_STEP
from runwatch.histograms import (
    ABOVE,
    BELOW,
    FIRST_EXPONENT,
    LOWEST_EXPONENT,
    NONFINITE,
    ZEROS,
    HistogramKind,
)
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.runs.access import VisibleRunId
from runwatch_server.services import CurrentServices
from runwatch_server.telemetry.histogram_store import LayerHistogram, find_histograms
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["telemetry"])


class HistogramView(msgspec.Struct, frozen=True):
    step: int
    attempt: int
    segment: int
    zeros: int
    below: int
    """Number of elements that are not zero and smaller than the first bin."""
    counts: list[int]
    """Number of elements in each bin; bin i holds magnitudes from 2^(lowest_exponent + i) to below
    twice that."""
    above: int
    """Number of finite elements that are larger than the last bin."""
    nonfinite: int


class HistogramList(msgspec.Struct, frozen=True):
    run_id: RunId
    kind: HistogramKind
    layer: str
    lowest_exponent: int
    histograms: list[HistogramView]
    """In the order of steps. Empty unless histograms were taken, by `attach(histograms=...)` or the
    command `detail`."""


@router.get(
    "/histograms",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=HistogramList),
)
async def get_histograms(
    services: CurrentServices,
    run_id: VisibleRunId,
    kind: HistogramKind,
    layer: str,
    step: Annotated[int | None, Query(ge=0, le=MAX_STEP)] = None,
    steps: Annotated[int, Query(ge=1, le=1000)] = 1,
    rank: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)] = 0,
) -> Response:
    """The newest histogram of a layer at or before `step` (by default the newest of all); `steps`
    asks for that many of the newest ones. For activations, `layer` is a module."""
    async with services.database.read() as connection:
        found = await find_histograms(
            connection, run_id, kind, layer, rank=rank, up_to=step, num_steps=steps
        )
    views = await asyncio.to_thread(lambda: [_view(one) for one in found])
    return json_response(HistogramList(run_id, kind, layer, LOWEST_EXPONENT, views))


def _view(found: LayerHistogram) -> HistogramView:
    counts: list[int] = found.counts.tolist()
    return HistogramView(
        step=found.step,
        attempt=found.attempt,
        segment=found.segment,
        zeros=counts[ZEROS],
        below=counts[BELOW],
        counts=counts[FIRST_EXPONENT:ABOVE],
        above=counts[ABOVE],
        nonfinite=counts[NONFINITE],
    )
