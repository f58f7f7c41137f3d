"""The pulse of runs: the loss of each as a small curve, and its newest values.

A curve takes some milliseconds per run to read, and a page of runs asks for a hundred of them again
and again. So curves are cached: for a while, or for good once the run has ended.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from runwatch.aliases import resolve, role_of
from runwatch.codec import decode_metrics
from runwatch.frames import Frame
from runwatch.nonfinite import JsonNumber, is_absent, to_json, to_json_list
from runwatch.rules.nonfinite_rule import is_loss
from runwatch.series import Role
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.runs import queries as run_queries
from runwatch_server.runs.queries import ListedRun
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.reading import Reader, Series, Window

POINTS: Final = 60
_MAX_CACHED: Final = 5_000
_FRESH_S: Final = 15.0
"""A curve hardly changes in this time. The newest values are read each time."""
_LOSS: Final = "loss"
_SHOWN: Final = (_LOSS, "lr", "tokens_per_s", "step_time", "grad_norm")
"""Series of which the newest values are shown."""


class Curve(msgspec.Struct, frozen=True):
    """A metric over the whole run."""

    metric: str
    steps: list[int]
    values: list[JsonNumber]
    """Mean of the finite values in each bucket; null if there is none."""
    nonfinite: list[int]
    """Indices of buckets in which a value was NaN or infinite."""


class Pulse(msgspec.Struct, frozen=True):
    run_id: RunId
    curve: Curve | None
    """Null if the run has sent no loss."""
    latest: dict[str, JsonNumber]
    """The newest values, by the program's names of the metrics."""
    steps_per_s: float | None


@dataclass(frozen=True, slots=True)
class _CachedCurve:
    curve: Curve | None
    last_loss: dict[str, JsonNumber]
    """By its metric, for frames that hold none; empty where the run has sent none."""
    read_at: float
    mark: tuple[int, int | None, bool]


class Pulses:
    """Reads pulses, and caches their curves."""

    def __init__(self, database: Database, reader: Reader, clock: Clock) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock
        self._cache: OrderedDict[RunId, _CachedCurve] = OrderedDict()

    async def read(self, found: Sequence[ListedRun]) -> list[Pulse]:
        return [await self._pulse(run) for run in found]

    async def latest(self, run: ListedRun) -> Pulse:
        """The newest values alone, without the curve."""
        newest = await self._newest(run)
        if newest is None:
            return Pulse(run.id, None, {}, None)
        latest = _latest(newest)
        if not any(role_of(name) is Role.LOSS for name in latest):
            # An evaluation's frame, or a log whose rows hold one thing each.
            latest |= (await self._known(run)).last_loss
        return Pulse(run.id, None, latest, _steps_per_s(newest))

    def forget(self, run_id: RunId) -> None:
        """Drops a removed run's curve, since a new run may come under the same id."""
        self._cache.pop(run_id, None)

    async def _pulse(self, run: ListedRun) -> Pulse:
        curve = (await self._known(run)).curve
        return msgspec.structs.replace(await self.latest(run), curve=curve)

    async def _newest(self, run: ListedRun) -> Frame | None:
        async with self._database.read() as connection:
            attempt = await run_queries.find_speaking_attempt(connection, run.id)
            body = await queries.newest_frame(connection, run.id, attempt)
        return None if body is None else await asyncio.to_thread(decode_metrics, body)

    async def _known(self, run: ListedRun) -> _CachedCurve:
        mark = (run.current_attempt, run.last_step, run.state.is_ended)
        now = self._clock.monotonic()
        cached = self._cache.get(run.id)
        if cached is None or (cached.mark != mark and now - cached.read_at >= _FRESH_S):
            cached = _CachedCurve(*await self._read(run), now, mark)
            self._cache[run.id] = cached
        self._cache.move_to_end(run.id)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return cached

    async def _read(self, run: ListedRun) -> tuple[Curve | None, dict[str, JsonNumber]]:
        async with self._database.read() as connection:
            names = await queries.list_metrics(connection, run.id)
        metric = main_metric(names)
        if metric is None:
            return None, {}
        series = await self._reader.metric_series(run.id, metric, Window(points=POINTS))
        return _curve_of(metric, series), await self._last_value(run.id, metric, series)

    async def _last_value(
        self, run_id: RunId, metric: str, series: Series
    ) -> dict[str, JsonNumber]:
        """The newest value of a metric, of which the last bucket of a curve holds the sum."""
        if not series.buckets.steps.size:
            return {}
        first = int(series.buckets.steps[-1])
        last = Window(first_step=first, last_step=first + series.width - 1, points=series.width)
        values = (await self._reader.metric_series(run_id, metric, last)).values
        if values is None or not values.size:
            return {}
        return {metric: to_json(float(values[-1, 0]))}


def main_metric(names: Sequence[str]) -> str | None:
    """The metric that shows how a run is doing: its loss, or else any loss."""
    return resolve(names).get(_LOSS) or next(filter(is_loss, names), None)


def _curve_of(metric: str, series: Series) -> Curve:
    buckets = series.buckets
    values: list[JsonNumber] = to_json_list(np.ascontiguousarray(buckets.mean[:, 0]))
    empty = np.flatnonzero(buckets.count[:, 0] == 0)
    for index in empty:
        values[index] = None
    return Curve(
        metric,
        buckets.steps.tolist(),
        values,
        np.flatnonzero(buckets.nonfinite[:, 0]).tolist(),
    )


def _latest(frame: Frame) -> dict[str, JsonNumber]:
    latest: dict[str, JsonNumber] = {}
    known = resolve(frame.metric_names)
    shown = {known[series] for series in _SHOWN if series in known}
    for column, name in enumerate(frame.metric_names):
        if name in shown:
            values = np.ascontiguousarray(frame.metrics[:, column])
            held = values[~is_absent(values)]
            if held.size:
                latest[name] = to_json(float(held[-1]))
    return latest


def _steps_per_s(frame: Frame) -> float | None:
    """None for a frame of one step, and if the clock went backwards."""
    if frame.num_steps < 2 or not frame.times[-1] > frame.times[0]:
        return None
    return (frame.num_steps - 1) / float(frame.times[-1] - frame.times[0])


async def visible_runs(
    database: Database, run_ids: Sequence[RunId], project: str | None
) -> list[ListedRun]:
    """The runs that exist and that the caller may see; the others are left out."""
    async with database.read() as connection:
        found = await run_queries.find_runs(connection, run_ids)
    return [run for run in found if project is None or run.project == project]
