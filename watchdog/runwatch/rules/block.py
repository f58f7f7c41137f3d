"""A stretch of rows, and how to read a series from it at any set of points.

Legend: T rows, L layers, K points, U distinct rows.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from runwatch.nonfinite import is_absent
from runwatch.rules.names import STEP
from runwatch.rules.observations import Rows
from runwatch.rules.windows import Bools, Floats, Indices
from runwatch.series import STATS


class Level(Enum):
    """What a value is of."""

    RUN = "run"
    LAYER = "layer"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """(K,) values, and whether each is known: recorded, and with enough history."""

    values: Floats
    known: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Truths:
    """(K,) verdicts of a condition, and whether each is known."""

    values: Bools
    known: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Places in a block at which a node is asked for: rows, and columns of a level."""

    level: Level
    rows: Indices
    columns: Indices
    is_whole: bool = False
    """All columns of a stretch: rules ask for the same again."""

    @property
    def size(self) -> int:
        return len(self.rows)

    def where(self, chosen: Bools) -> "Points":
        return Points(self.level, self.rows[chosen], self.columns[chosen])


def points_of_rows(level: Level, rows: Indices, num_columns: int) -> Points:
    """All columns of these rows, row by row."""
    return Points(level, np.repeat(rows, num_columns), np.tile(np.arange(num_columns), len(rows)))


class Block:
    """Rows whose layers stand in the evaluator's order."""

    def __init__(self, rows: Rows, num_layers: int) -> None:
        self.rows = rows
        self.num_layers = num_layers
        self.computed: dict[Hashable, Numbers] = {}
        """What a rule found of windows that others share, at all points."""
        self._grids: dict[tuple[Level, int, int], Points] = {}
        self._read: dict[tuple[str, Points], Numbers] = {}
        self._records: dict[str, Bools] = {}

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    @cached_property
    def names(self) -> frozenset[str]:
        """Of the metrics and stats that it has columns for."""
        return frozenset((*self.rows.metric_columns, *self.rows.stat_columns))

    def num_columns(self, level: Level) -> int:
        return self.num_layers if level is Level.LAYER else 1

    def grid(self, level: Level, start: int, stop: int) -> Points:
        """All columns of the rows from `start` to before `stop`, row by row."""
        points = self._grids.get((level, start, stop))
        if points is None:
            bare = points_of_rows(level, np.arange(start, stop), self.num_columns(level))
            points = Points(level, bare.rows, bare.columns, is_whole=True)
            self._grids[level, start, stop] = points
        return points

    def read(self, name: str, points: Points) -> Numbers:
        """A series at these points; among layers a stat's name never means a metric."""
        if not points.is_whole:
            return self._gather(name, points)
        numbers = self._read.get((name, points))
        if numbers is None:
            numbers = self._read[name, points] = self._gather(name, points)
        return numbers

    def _gather(self, name: str, points: Points) -> Numbers:
        if points.level is Level.LAYER and name in STATS:
            column = self.rows.stat_columns.get(name)
            if column is None:
                return Numbers(np.full(points.size, np.nan), np.zeros(points.size, np.bool_))
            stat_TL = self.rows.stats[:, column, :]
            values_K = stat_TL[points.rows, points.columns]
            return Numbers(values_K.astype(np.float64), ~is_absent(values_K))
        values_T, known_T = self._metric(name)
        return Numbers(values_T[points.rows], known_T[points.rows])

    def records(self, name: str) -> Bools:
        """(T,) whether a row recorded this series: its metric, or its stat in any layer."""
        recorded_T = self._records.get(name)
        if recorded_T is None:
            _, recorded_T = self._metric(name)
            if name in self.rows.stat_columns:
                absent_TL = self._absent_stats_TSL[:, self.rows.stat_columns[name], :]
                recorded_T = np.asarray(recorded_T | ~absent_TL.all(axis=1))
            self._records[name] = recorded_T
        return recorded_T

    @cached_property
    def _absent_stats_TSL(self) -> Bools:
        return is_absent(np.ascontiguousarray(self.rows.stats))

    def _metric(self, name: str) -> tuple[Floats, Bools]:
        if name == STEP:
            return self.rows.steps.astype(np.float64), np.ones(self.num_rows, np.bool_)
        column = self.rows.metric_columns.get(name)
        if column is None:
            return np.full(self.num_rows, np.nan), np.zeros(self.num_rows, np.bool_)
        values_T = np.ascontiguousarray(self.rows.metrics[:, column])
        return values_T, ~is_absent(values_T)
