"""The level that a series must pass before a rule fails, step by step: what a chart draws.

A rule that wants several things at once (`a > x and a > y and ...`) has the strictest of its
levels. What else it wants, the level does not tell: passing it is necessary, and not always enough.
Levels come out of the judging itself, so that they are those that live verdicts were made by.

Legend: T rows, R rows of a stretch, C columns (layers, or one for the run), N rows with a known
level.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from runwatch.rules import expressions as tree
from runwatch.rules.block import Block
from runwatch.rules.evaluation import Evaluation, Laid
from runwatch.rules.following import Verdicts
from runwatch.rules.judging import ConditionJudge
from runwatch.rules.names import STEP
from runwatch.rules.objectives import Objectives
from runwatch.rules.observations import Rows
from runwatch.rules.rule import Rule
from runwatch.rules.window_keys import Histories, forget_objective
from runwatch.rules.windows import Bools, Floats, Indices
from runwatch.vocabulary import Scope

Direction = Literal["above", "below"]

_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Threshold:
    """A rule's level for one series over some rows."""

    rule: Rule
    direction: Direction
    """The side on which the rule may fail."""
    steps: Indices
    """(N,)"""
    levels: Floats
    """(N,) finite"""


def has_threshold(rule: Rule, series: str, scope: Scope = Scope.RUN) -> bool:
    """Whether a rule of this scope compares the series itself, a metric or a layer's stat, with a
    level."""
    return rule.scope is scope and bool(_comparisons(rule, series))


def is_level(rule: Rule, series: str) -> bool:
    """Whether its level stays the same whatever the run does."""
    return all(not tree.series_read(one.right) for one in _comparisons(rule, series))


def series_needed(rule: Rule) -> frozenset[str]:
    """The series that must be among the rows, beside those that say what is trained."""
    return frozenset() if rule.when is None else tree.series_read(rule.when) - {STEP}


def looks_across_layers(rule: Rule) -> bool:
    """Whether the verdict about one layer hangs on the others, so that the rows must hold all."""
    return rule.when is not None and any(
        isinstance(node, tree.AcrossLayers) for node in tree.walk(rule.when)
    )


def rows_before(rule: Rule) -> int:
    """How many rows before those of interest fill the rule's windows."""
    return 2 * max(_window_sizes(rule, of_start=False), default=0)


def rows_of_start(rule: Rule) -> int:
    """How many of an attempt's first rows fill the windows that hold its beginning."""
    return 2 * max(_window_sizes(rule, of_start=True), default=0)


def threshold(rule: Rule, series: str, rows: Rows, layer: str | None = None) -> Threshold:
    """The rule's level for the series, or for the layer's; `has_threshold` says that it has one.

    The rows hold the layer and, where the rule `looks_across_layers`, all others.
    """
    if layer is not None and not looks_across_layers(rule):
        rows = _of_layer(rows, layer)
    compared = _comparisons(rule, series)
    columns = () if layer is None else rows.layer_names
    judge = _Tracer(rule, compared, columns, 0 if layer is None else columns.index(layer))
    histories: Histories = {}
    with np.errstate(all="ignore"):
        for part, is_another in _parts_of(rows):
            if is_another:
                forget_objective(histories)
            laid: Laid = {}
            judge.judge(Block(part, len(columns)), histories, laid, ())
            for key in laid:
                histories[key].keep()
    levels_T = np.concatenate([*judge.levels, np.empty(0)])
    known = np.flatnonzero(np.isfinite(levels_T))
    return Threshold(rule, _direction(compared[0]), rows.steps[known], levels_T[known])


def _parts_of(rows: Rows) -> Iterator[tuple[Rows, bool]]:
    objectives = Objectives()
    for start in range(0, rows.num_rows, _BLOCK_ROWS):
        yield from objectives.parts_of(rows.between(start, start + _BLOCK_ROWS))


def _of_layer(rows: Rows, layer: str) -> Rows:
    column = rows.layer_names.index(layer)
    return replace(rows, layer_names=(layer,), stats=rows.stats[:, :, column : column + 1])


class _Tracer(ConditionJudge):
    """Judges, and notes the levels by which it does, of one of its columns."""

    def __init__(
        self, rule: Rule, compared: Sequence[tree.Comparison], columns: tuple[str, ...], column: int
    ) -> None:
        super().__init__(rule, columns)
        self._compared = compared
        self._column = column
        self.levels: list[Floats] = []

    def _verdicts(self, reading: Evaluation, triggered_T: Bools, rows: range) -> Verdicts:
        verdicts = super()._verdicts(reading, triggered_T, rows)
        points = reading.grid(self._condition.level)
        is_alone = len(self.standing.columns) == 1
        own = points if is_alone else points.where(points.columns == self._column)
        found = [reading.numbers(one.right, own) for one in self._compared]
        levels = [np.where(one.known, one.values, np.nan) for one in found]
        strictest = np.fmax if _direction(self._compared[0]) == "above" else np.fmin
        self.levels.append(strictest.reduce(levels)[: len(verdicts.failing_RC)])
        return verdicts


def _window_sizes(rule: Rule, *, of_start: bool) -> list[int]:
    windows = frozenset[tree.Window]() if rule.when is None else tree.windows_of(rule.when)
    return [window.size for window in windows if window.is_opening is of_start]


def _comparisons(rule: Rule, series: str) -> list[tree.Comparison]:
    """Those of one direction that must all hold, with the series alone on their left."""
    if rule.when is None:
        return []
    wanted = rule.when.operands if isinstance(rule.when, tree.Logic) else (rule.when,)
    if isinstance(rule.when, tree.Logic) and rule.when.operator != "and":
        return []
    own = [
        part
        for part in wanted
        if isinstance(part, tree.Comparison)
        and part.left == tree.Series(series)
        and part.operator in (">", ">=", "<", "<=")
    ]
    return [part for part in own if _direction(part) == _direction(own[0])]


def _direction(comparison: tree.Comparison) -> Direction:
    return "above" if comparison.operator in (">", ">=") else "below"
