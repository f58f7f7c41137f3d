"""Reads telemetry back: one series, or one stat of all layers, at the requested resolution.

The requested steps are covered by the coarsest suitable tiles, by finer ones where those are not
made yet, and the newest steps by the frames themselves.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError
from runwatch_server.runs.queries import list_attempts
from runwatch_server.telemetry import queries, segment_queries
from runwatch_server.telemetry.buckets import (
    LEVELS,
    Buckets,
    from_values,
    regroup,
    side_by_side,
)
from runwatch_server.telemetry.coverage import are_held
from runwatch_server.telemetry.gaps import Gap, joined
from runwatch_server.telemetry.history import Stretch, attempts_in_time, effective_history
from runwatch_server.telemetry.layer_union import columns_among, targets_of, united
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.sources import Source
from runwatch_server.telemetry.unknown_names import check_place, unknown_name
from runwatch_server.telemetry.wanted import Wanted

_MAX_RAW_STEPS: Final = 4096
"""Most steps of a layer's series that are read from frames although more were requested: reading
frames costs a millisecond for some 50 steps of 2400 values, so longer spans are answered from
64-step buckets."""


MAX_CELLS: Final = 2_000_000
"""Of all columns of an answer: 100 buckets of 20 000 layers, or 6666 of 300."""
MAX_RANKS: Final = 1024
"""Most ranks in one answer: each is read by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The requested part of a run."""

    rank: int = 0
    first_step: int | None = None
    last_step: int | None = None
    points: int = 1000
    attempt: int | None = None
    """The attempt, or with `segment` that segment, of which steps are read even if they were
    undone; None: the effective history."""
    segment: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values over steps: of single steps (`width` 1), or aggregated over `width` steps."""

    width: int
    buckets: Buckets
    """Empty buckets are left out."""
    values: NDArray[np.float64] | None
    """(B, C) as recorded, with NaN and infinity; None if `width` is over 1."""
    stretches: tuple[Stretch, ...]
    """The attempt and segment in force for which steps."""
    gaps: tuple[Gap, ...]
    """Stored steps that could not be read: they have no values here."""

    def columns(self, columns: NDArray[np.int64]) -> "Series":
        """Some of the columns, in this order."""
        values = None if self.values is None else self.values[:, columns]
        return replace(self, buckets=self.buckets.columns(columns), values=values)


class Reader:
    """Reads a run's telemetry."""

    def __init__(self, database: Database, layouts: Layouts, packs: PackReader) -> None:
        self._database = database
        self._layouts = layouts
        self._packs = packs

    async def metric_series(self, run_id: RunId, metric: str, window: Window) -> Series:
        """Raises NotFoundError for a metric that the run never sent."""
        async with self._database.read() as connection:
            known = await queries.list_metrics(connection, run_id)
        if metric not in known:
            raise unknown_name("metric_not_found", "metric", metric, known)
        return await self._read(run_id, Wanted(metric, {}, {}, 1), window)

    async def layer_series(self, run_id: RunId, layer: str, stat: str, window: Window) -> Series:
        """Raises NotFoundError for a layer or stat that is in no layout of the run."""
        places: dict[str, tuple[int, int]] = {}
        starts: dict[str, int] = {}
        layouts = await self._layouts.all(run_id)
        for layout in layouts:
            if stat in layout.stats and layer in layout.layer_names:
                places[layout.hash] = (layout.layer_names.index(layer), 1)
                starts[layout.hash] = layout.stats.index(stat) * len(layout.layers)
        if not places:
            raise _unknown_series(layouts, layer, stat)
        return await self._read(run_id, Wanted(stat, places, starts, 1), window)

    async def all_layers(
        self, run_id: RunId, stat: str, window: Window
    ) -> tuple[tuple[str, ...], Series]:
        """A stat of every layer of the newest layout that has it, and of the layers of older ones
        that have values in these steps: the layers' names in the model's order, and a column for
        each. Raises NotFoundError."""
        layouts = await self._layouts.all(run_id)
        having = [layout for layout in layouts if stat in layout.stats]
        if not having:
            raise unknown_name("stat_not_found", "stat", stat, _stats_of(layouts))
        names = united(having)
        targets = targets_of(having, names)
        known = [layout for layout in having if layout.hash in targets]
        wanted = Wanted(
            stat,
            {layout.hash: (0, len(layout.layers)) for layout in known},
            {layout.hash: layout.stats.index(stat) * len(layout.layers) for layout in known},
            len(names),
            targets,
        )
        series = await self._read(run_id, wanted, window)
        if len(known) == 1:
            return names, series
        held = np.flatnonzero((series.buckets.count + series.buckets.nonfinite).any(axis=0))
        newest = columns_among(names, having[-1].layer_names)
        kept: NDArray[np.int64] = np.union1d(held, newest)
        columns: list[int] = kept.tolist()
        return tuple(names[column] for column in columns), series.columns(kept)

    async def layer_sizes(self, run_id: RunId) -> Mapping[str, int]:
        """The number of elements of each layer, as far as it is known."""
        layouts = await self._layouts.all(run_id)
        return {name: size for layout in layouts for name, size in layout.sizes.items()}

    async def all_ranks(
        self, run_id: RunId, metric: str, window: Window
    ) -> tuple[list[int], Buckets, int, list[Gap]]:
        """A metric of every rank: the ranks' numbers, buckets with a column for each, the width of
        these in steps, and gaps of any rank. Raises NotFoundError for a metric that the run never
        sent."""
        wanted = Wanted(metric, {}, {}, 1)
        columns: list[Buckets] = []
        gaps: list[Gap] = []
        async with self._database.read() as connection:
            known = await queries.list_metrics(connection, run_id)
            if metric not in known:
                raise unknown_name("metric_not_found", "metric", metric, known)
            segments = await segment_queries.list_segments_of_ranks(connection, run_id)
            places = attempts_in_time(await list_attempts(connection, run_id))
            stretches = {
                rank: _stretches(rows, window, places)
                for rank, rows in islice(segments.items(), MAX_RANKS)
            }
            points = _points(window, len(stretches))
            width = _width(_longest(stretches.values()), points, is_metric=True)
            for rank, own in stretches.items():
                by_place = {(row.attempt, row.segment): row for row in segments[rank]}
                pieces: list[Buckets] = []
                for stretch in own:
                    segment = by_place[stretch.attempt, stretch.segment]
                    source = Source(connection, self._packs, segment, wanted, stretch, gaps)
                    pieces.extend(await source.buckets(width))
                columns.append(await asyncio.to_thread(regroup, pieces, width, 1))
        buckets = await asyncio.to_thread(side_by_side, columns)
        return list(stretches), buckets, width, joined(gaps)

    async def _read(self, run_id: RunId, wanted: Wanted, window: Window) -> Series:
        async with self._database.read() as connection:
            segments = await segment_queries.list_segments(connection, run_id, window.rank)
            attempts = await list_attempts(connection, run_id)
            check_place(attempts, window.attempt, window.rank)
            places = attempts_in_time(attempts)
            stretches = _stretches(segments, window, places)
            by_place = {(row.attempt, row.segment): row for row in segments}
            points = _points(window, wanted.num_columns)
            width = _width(stretches, points, is_metric=wanted.is_metric)
            if not wanted.is_metric and await _were_removed(connection, stretches, by_place):
                width = -(-width // LEVELS[0]) * LEVELS[0]
            pieces: list[Buckets] = []
            raw: list[NDArray[np.float64]] = []
            gaps: list[Gap] = []
            for stretch in stretches:
                segment = by_place[stretch.attempt, stretch.segment]
                source = Source(connection, self._packs, segment, wanted, stretch, gaps)
                if width == 1:
                    steps, values = await source.values()
                    pieces.append(from_values(steps, values))
                    raw.append(values)
                else:
                    pieces.extend(await source.buckets(width))
        if width == 1:
            return _raw_series(pieces, raw, stretches, joined(gaps), wanted.num_columns)
        grouped = await asyncio.to_thread(regroup, pieces, width, wanted.num_columns)
        held = np.asarray((grouped.count + grouped.nonfinite).any(axis=1))
        return Series(width, grouped.rows(held), None, tuple(stretches), tuple(joined(gaps)))


def _unknown_series(layouts: Sequence[Layout], layer: str, stat: str) -> NotFoundError:
    """An error about the layer if the stat exists, else about the stat."""
    code = "series_not_found"
    having = [layout for layout in layouts if stat in layout.stats]
    if not having:
        return unknown_name(code, "stat", stat, _stats_of(layouts))
    known = list(dict.fromkeys(name for layout in having for name in layout.layer_names))
    return unknown_name(code, f"{stat} of a layer", layer, known)


def _stats_of(layouts: Sequence[Layout]) -> list[str]:
    return list(dict.fromkeys(stat for layout in layouts for stat in layout.stats))


def _stretches(
    segments: Sequence[SegmentRow], window: Window, places: Mapping[int, int]
) -> list[Stretch]:
    """The requested stretches of the run, in the order of steps."""
    all_stretches = [row.stretch for row in segments if window.attempt in (None, row.attempt)]
    if window.segment is not None:
        newest = max((one.attempt for one in all_stretches), key=places.__getitem__, default=0)
        history = [
            stretch
            for stretch in all_stretches
            if stretch.segment == window.segment and stretch.attempt == newest
        ]
    else:
        history = effective_history(all_stretches, places)
    first = window.first_step or 0
    last = 2**62 if window.last_step is None else window.last_step
    clipped = (stretch.clip(first, last) for stretch in history)
    return [stretch for stretch in clipped if stretch is not None]


def _points(window: Window, num_columns: int) -> int:
    """As many as are wanted, or as all columns together have cells for."""
    return max(min(window.points, MAX_CELLS // max(num_columns, 1)), 1)


def _width(stretches: Sequence[Stretch], points: int, *, is_metric: bool) -> int:
    """Steps per bucket that give at most about `points` buckets; 1: values as recorded."""
    if not stretches:
        return 1
    num_steps = stretches[-1].last_step - stretches[0].first_step + 1
    width = -(-num_steps // points)
    if width == 1:
        return 1
    fits = [level for level in LEVELS if level <= width]
    if fits:
        return -(-width // fits[-1]) * fits[-1]
    return width if is_metric or num_steps <= _MAX_RAW_STEPS else LEVELS[0]


def _longest(stretches: Iterable[Sequence[Stretch]]) -> list[Stretch]:
    """One stretch from the first to the last step of all; none if there is none."""
    every = [stretch for own in stretches for stretch in own]
    if not every:
        return []
    first = min(stretch.first_step for stretch in every)
    return [replace(every[0], first_step=first, last_step=max(one.last_step for one in every))]


async def _were_removed(
    connection: AsyncConnection,
    stretches: Sequence[Stretch],
    segments: Mapping[tuple[int, int], SegmentRow],
) -> bool:
    """Whether frames of these steps were removed by retention, so that their rollups have to be
    used. Frames that stayed as an alert's evidence are used themselves."""
    for stretch in stretches:
        segment = segments[stretch.attempt, stretch.segment]
        below = stretch.clip(stretch.first_step, segment.raw_from - 1)
        if below is not None and not await are_held(connection, segment, below):
            return True
    return False


def _raw_series(
    pieces: list[Buckets],
    raw: list[NDArray[np.float64]],
    stretches: Sequence[Stretch],
    gaps: Sequence[Gap],
    num_columns: int,
) -> Series:
    values = np.concatenate(raw) if raw else np.empty((0, num_columns))
    return Series(1, regroup(pieces, 1, num_columns), values, tuple(stretches), tuple(gaps))
