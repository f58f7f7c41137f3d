"""Finds steps whose stat is finite although elements were NaN or infinite: these are left out of a
gradient's norm and counted in another stat. Whoever reads the norm is told so."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.series import STAT_SPECS
from runwatch.vocabulary import RunId
from runwatch_server.errors import NotFoundError
from runwatch_server.telemetry.buckets import Buckets
from runwatch_server.telemetry.reading import Reader, Series, Window

_COARSE: Final = 64
"""Number of points at which the whole run is checked for anything left out."""


async def with_left_out(
    reader: Reader, run_id: RunId, layer: str, stat: str, window: Window, series: Series
) -> Series:
    """A layer's series, in which steps that left something out are counted as not finite."""
    count = _counted_by(stat)
    if not count or not await _has_any(reader, run_id, count, window):
        return series
    try:
        counts = await reader.layer_series(run_id, layer, count, window)
    except NotFoundError:  # this run does not count them
        return series
    return _marked(series, counts.buckets)


async def with_left_out_layers(
    reader: Reader,
    run_id: RunId,
    layers: tuple[str, ...],
    stat: str,
    window: Window,
    series: Series,
) -> Series:
    """The same for all layers, whose names are those of the columns."""
    count = _counted_by(stat)
    if not count or not await _has_any(reader, run_id, count, window):
        return series
    try:
        names, counts = await reader.all_layers(run_id, count, window)
    except NotFoundError:
        return series
    places = {name: column for column, name in enumerate(layers)}
    known = [column for column, name in enumerate(names) if name in places]
    targets = np.array([places[names[column]] for column in known], np.int64)
    columns = counts.buckets.columns(np.array(known, np.int64))
    return _marked(series, columns.spread(targets, len(layers)))


def _counted_by(stat: str) -> str:
    """The stat that counts what this one leaves out; empty if it leaves nothing out."""
    return STAT_SPECS[stat].counted_by if stat in STAT_SPECS else ""


async def _has_any(reader: Reader, run_id: RunId, count: str, window: Window) -> bool:
    """False if the sum over all layers, which is a metric of the run, says that nothing was left
    out. That is read quickly, while the counts of all layers are as many values as their norms."""
    try:
        total = await reader.metric_series(run_id, count, replace(window, points=_COARSE))
    except NotFoundError:
        return True
    is_known = total.buckets.steps.size > 0
    return not is_known or bool((~(total.buckets.high <= 0)).any())


def _marked(series: Series, counts: Buckets) -> Series:
    """The series with its counts marked: for a bucket of several steps a lower bound, taken from
    its least and largest count."""
    buckets = series.buckets
    _, rows, counted = np.intersect1d(
        buckets.steps, counts.steps, assume_unique=True, return_indices=True
    )
    low, high = counts.low[counted], counts.high[counted]
    num_steps = np.where(low > 0, counts.count[counted], high > 0)
    nonfinite: NDArray[np.integer] = buckets.nonfinite.copy()
    nonfinite[rows] = np.maximum(nonfinite[rows], num_steps)
    return replace(series, buckets=replace(buckets, nonfinite=nonfinite))
