"""A condition's verdicts at many points at once: the meaning of the rule language.

- A comparison with NaN is false. (What is not finite is the built-in NonFinite rule's concern.)
- What was not recorded is neither zero nor NaN: a verdict that hangs on it is unknown. `and` and
  `or` are decided as soon as what is known decides them.
- `and` and `or` read their right side only where the left one leaves it open, so a cheap condition
  written first saves the cost of a median behind it, and changes no verdict.

Legend: T rows, L columns, K points, U distinct rows among them.
"""

from collections.abc import Hashable, Mapping
from typing import Final

import numpy as np

from runwatch.rules import expressions as tree
from runwatch.rules.across_layers import OF_ROW, rank_of
from runwatch.rules.block import Block, Level, Numbers, Points, Truths, points_of_rows
from runwatch.rules.sampling import records_awaited
from runwatch.rules.statistics import OF_CURRENT
from runwatch.rules.window_keys import Histories, Reader, WindowKey
from runwatch.rules.window_values import WindowsAt, settled_values
from runwatch.rules.windows import NO_STEP, Bools, History, Indices, Samples

_COMPARE: Final[Mapping[str, "np.ufunc"]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_COMPUTE: Final[Mapping[str, "np.ufunc"]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
_CHECK: Final[Mapping[str, "np.ufunc"]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


Laid = dict[WindowKey, Samples]
"""Windows that hold their samples of the present rows, and which samples those are."""


class Evaluation:
    """Reads conditions over some rows of a block, for one rule."""

    def __init__(
        self,
        block: Block,
        reader: Reader,
        histories: Histories,
        laid: Laid,
        rows: range,
        private: Laid | None = None,
    ) -> None:
        self._block = block
        self._reader = reader
        self._histories = histories
        self._shared = laid
        self._rows = rows
        self._computed: dict[Hashable, Numbers] = {}
        """A window's worth at points that were asked for before: `x - median(x, n) > median(x, n)`
        sorts its window once."""
        self.private: Laid = {} if private is None else private
        """The windows of this rule alone, laid for `rows` only."""

    def lay(self, level: Level, node: tree.Windowed) -> None:
        """Put the present rows into a window, whether or not a verdict will come to read it."""
        self._lay(self._reader.key(level, node))

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    def grid(self, level: Level) -> Points:
        return self._block.grid(level, self._rows.start, self._rows.stop)

    def truths(self, node: tree.Truth, points: Points) -> Truths:
        if points.level is Level.LAYER and points.size and self._reader.is_of_run(node):
            rows = self._rows_of(points)
            of_run = self.truths(node, rows)
            place_K = points.rows - rows.rows[0]
            return Truths(of_run.values[place_K], of_run.known[place_K])
        match node:
            case tree.Comparison():
                left, right = self.numbers(node.left, points), self.numbers(node.right, points)
                verdict = _COMPARE[node.operator](left.values, right.values)
                if node.operator == "!=":  # the only one that holds for NaN
                    verdict &= ~(np.isnan(left.values) | np.isnan(right.values))
                return Truths(verdict, left.known & right.known)
            case tree.Check():
                operand = self.numbers(node.operand, points)
                return Truths(_CHECK[node.function](operand.values), operand.known)
            case tree.Not():
                operand_truths = self.truths(node.operand, points)
                return Truths(~operand_truths.values, operand_truths.known)
            case tree.Logic():
                return self._logic(node, points)

    def numbers(self, node: tree.Number, points: Points) -> Numbers:
        match node:
            case tree.Constant():
                return Numbers(np.full(points.size, node.number), np.ones(points.size, np.bool_))
            case tree.Series():
                return self._block.read(node.name, points)
            case tree.Negative():
                operand = self.numbers(node.operand, points)
                return Numbers(-operand.values, operand.known)
            case tree.Arithmetic():
                left, right = self.numbers(node.left, points), self.numbers(node.right, points)
                values = _COMPUTE[node.operator](left.values, right.values)
                return Numbers(values, left.known & right.known)
            case tree.Elementwise():
                operand = self.numbers(node.operand, points)
                function = np.abs if node.function == "abs" else np.log10
                return Numbers(function(operand.values), operand.known)
            case _:
                return self._composed(node, points)

    def _composed(
        self, node: tree.Choice | tree.Windowed | tree.AcrossLayers, points: Points
    ) -> Numbers:
        match node:
            case tree.Choice():
                return self._choice(node, points)
            case tree.Windowed():
                return self._remembered(node, points)
            case tree.AcrossLayers():
                return self._across_layers(node, points)

    def _logic(self, node: tree.Logic, points: Points) -> Truths:
        decided_by = node.operator == "or"
        if not points.size:  # a rule over layers, of a run that has none
            return Truths(np.empty(0, np.bool_), np.empty(0, np.bool_))
        first, *others = node.operands
        part = self.truths(first, points)
        decided, known = _decided(part, decided_by), part.known.copy()
        for operand in others:
            is_open = ~decided
            num_open = int(np.count_nonzero(is_open))
            if not num_open:
                break
            part = self.truths(
                operand, points if num_open == points.size else points.where(is_open)
            )
            decided[is_open] = _decided(part, decided_by)
            known[is_open] &= part.known
        return Truths(decided if decided_by else ~decided, known | decided)

    def _choice(self, node: tree.Choice, points: Points) -> Numbers:
        condition = self.truths(node.condition, points)
        then = self.numbers(node.then, points)
        otherwise = self.numbers(node.otherwise, points)
        return Numbers(
            np.where(condition.values, then.values, otherwise.values),
            condition.known & np.where(condition.values, then.known, otherwise.known),
        )

    def _across_layers(self, node: tree.AcrossLayers, points: Points) -> Numbers:
        rows_U, place_K = _distinct(points.rows)
        num_layers = self._block.num_layers
        if num_layers == 0 or not points.size:
            return Numbers(np.full(points.size, np.nan), np.zeros(points.size, np.bool_))
        operand = self.numbers(node.operand, points_of_rows(Level.LAYER, rows_U, num_layers))
        usable_UL = (operand.known & ~np.isnan(operand.values)).reshape(-1, num_layers)
        values_UL = operand.values.reshape(-1, num_layers)
        if node.function == "rank_of":
            ranks_UL = rank_of(values_UL, usable_UL)
            return Numbers(ranks_UL[place_K, points.columns], usable_UL[place_K, points.columns])
        values_U = OF_ROW[node.function](values_UL, usable_UL)
        return Numbers(values_U[place_K], np.asarray(usable_UL.any(axis=1))[place_K])

    def _remembered(self, node: tree.Windowed, points: Points) -> Numbers:
        """A window's worth; other rules ask the same of shared windows at all points."""
        key, needed = self._reader.key(points.level, node), self._reader.num_needed(node)
        if key.level is not points.level:  # of the run, and so the same in every layer of a row
            if not points.size:
                return Numbers(np.empty(0), np.empty(0, np.bool_))
            rows = self._rows_of(points)
            of_run = self._remembered(node, rows)
            place_K = points.rows - rows.rows[0]
            return Numbers(of_run.values[place_K], of_run.known[place_K])
        asked = (key, node.function, node.parameter, needed, points)
        is_shared = not key.owner and points.is_whole
        computed = self._block.computed if is_shared else self._computed
        if asked not in computed:
            computed[asked] = self._windowed(node, points)
        return computed[asked]

    def _rows_of(self, points: Points) -> Points:
        """The run's, from the first row of some layers' points to the last."""
        first, last = int(points.rows[0]), int(points.rows[-1])
        if last - first + 1 == self.num_rows:
            return self.grid(Level.RUN)  # other rules ask there, too
        return points_of_rows(Level.RUN, np.arange(first, last + 1), 1)

    def _windowed(self, node: tree.Windowed, points: Points) -> Numbers:
        key = self._reader.key(points.level, node)
        rows_K = points.rows - self._lay(key)
        history = self._histories[key]
        if key.is_opening and history.is_full:
            values_L = settled_values(node, history, rows_K)
            return Numbers(values_L[points.columns], np.ones(points.size, np.bool_))
        if node.function == "age":
            return self._age(node, points, history, rows_K)
        windows = WindowsAt(history, rows_K, points.columns)
        known_K = windows.filled_K >= self._reader.num_needed(node)
        current_K = None
        if node.function in OF_CURRENT:
            current = self.numbers(_number(node.operand), points)
            current_K, known_K = current.values, known_K & current.known
        values_K = windows.values(node, known_K, current_K)
        if node.function == "last":
            return self._last(node, points, Numbers(values_K, known_K))
        return Numbers(values_K, known_K)

    def _last(self, node: tree.Windowed, points: Points, before: Numbers) -> Numbers:
        """The current value where there is one, else the newest in the window."""
        now = self.numbers(_number(node.operand), points)
        return Numbers(np.where(now.known, now.values, before.values), now.known | before.known)

    def _age(
        self, node: tree.Windowed, points: Points, history: History, rows_K: Indices
    ) -> Numbers:
        """Steps since the operand was last recorded and finite; 0 where it is now."""
        now = self.numbers(_number(node.operand), points)
        is_fresh = now.known & np.isfinite(now.values)
        seen_K = history.newest_steps_at(rows_K, points.columns)
        ages_K = (self._block.rows.steps[points.rows] - seen_K).astype(np.float64)
        return Numbers(np.where(is_fresh, 0.0, ages_K), is_fresh | (seen_K != NO_STEP))

    def _lay(self, key: WindowKey) -> int:
        """See to it that the window holds the present rows; returns the first of them."""
        laid = self.private if key.owner else self._shared
        rows = self._rows if key.owner else range(self._block.num_rows)
        if key in laid:
            return rows.start
        num_columns = self._block.num_columns(key.level)
        if key not in self._histories:
            self._histories[key] = key.new_history(num_columns)
        if key.is_opening and self._histories[key].is_full:
            laid[key] = self._histories[key].lay_nothing(
                self._block.rows.steps[rows.start : rows.stop]
            )
            return rows.start
        points = self._block.grid(key.level, rows.start, rows.stop)
        operand = self._operand(key.operand, points)
        enters = operand.known & np.isfinite(operand.values)
        if key.is_awaiting:
            enters &= records_awaited(self._block, key.operand, points)
        samples = Samples(
            operand.values.reshape(len(rows), num_columns),
            enters.reshape(len(rows), num_columns),
            self._block.rows.steps[rows.start : rows.stop],
        )
        if key.is_opening:
            samples = self._histories[key].opening(samples)
        self._histories[key].lay(samples)
        laid[key] = samples
        return rows.start

    def _operand(self, node: tree.Expression, points: Points) -> Numbers:
        if isinstance(node, tree.Number):
            return self.numbers(node, points)
        verdicts = self.truths(node, points)
        return Numbers(verdicts.values.astype(np.float64), verdicts.known)


def _distinct(rows_K: Indices) -> tuple[Indices, Indices]:
    """(U,) the rows of some points, which are in order, and (K,) the place of each among them."""
    if rows_K.size and rows_K[0] == rows_K[-1]:
        return rows_K[:1], np.zeros_like(rows_K)
    return np.unique(rows_K, return_inverse=True)


def _decided(part: Truths, decided_by: bool) -> Bools:
    """Where one operand of `and` or `or` decides by itself."""
    return np.asarray(part.known & (part.values if decided_by else ~part.values))


def _number(node: tree.Expression) -> tree.Number:
    assert isinstance(node, tree.Number)
    return node
