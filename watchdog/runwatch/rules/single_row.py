"""A condition over one row of the run, as plain floats: what `evaluation` says, for less.

Live, a row comes at a time, or a few, and a rule of the run asks for a dozen numbers of each; in
arrays of so few elements each of them costs a hundred times what it is worth. So a condition that
looks at no layer is compiled once, into functions that take a row. None stands for 'unknown'. The
windows themselves, and the functions of their samples, are those of `evaluation`, so both give the
same bits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from runwatch.nonfinite import is_absent
from runwatch.rules import expressions as tree
from runwatch.rules.block import Block, Level
from runwatch.rules.evaluation import Evaluation
from runwatch.rules.names import STEP
from runwatch.rules.sampling import records_awaited
from runwatch.rules.statistics import OF_CURRENT, of_windows
from runwatch.rules.window_keys import Histories, Reader, WindowKey
from runwatch.rules.windows import NO_STEP, Samples

LAID_ALONE: Final = Samples(np.zeros((1, 1)), np.zeros((1, 1), np.bool_), np.zeros(1, np.int64))
"""Stands for samples of single rows, of which nothing is asked but whether they were laid."""

Question = tuple[WindowKey, str, float, int]
"""A function of a window: which window, which function, its parameter, the samples it needs."""


class SingleRow:
    """What one row recorded of the run, and what was computed from it so far."""

    def __init__(self, block: Block, place: int, histories: Histories) -> None:
        """`place`: which row of the block it is."""
        rows = block.rows
        self.place = place
        self.step = int(rows.steps[place])
        self.histories = histories
        self.answers: dict[Question, float | None] = {}
        """Rules ask the same of the same windows."""
        self._block = block
        self._across: dict[str, float | None] = {}
        """By the text of what is asked."""
        self._columns = rows.metric_columns
        self._values: list[float] = rows.metrics[place].tolist()
        self._absent: list[bool] = is_absent(np.ascontiguousarray(rows.metrics[place])).tolist()

    def records_awaited(self, key: WindowKey) -> bool:
        """Whether it recorded one of the series that the window waits for."""
        points = self._block.grid(Level.RUN, self.place, self.place + 1)
        return bool(records_awaited(self._block, key.operand, points)[0])

    def lay(self, key: WindowKey, sample: float | None) -> None:
        """Put what the row brings into a window of the run."""
        history = self.histories.get(key)
        if history is None:
            history = self.histories[key] = key.new_history(1)
        enters = sample is not None and math.isfinite(sample)
        if enters and key.is_opening and history.is_full:
            enters = False
        history.lay_one(sample if enters else None, self.step)

    def read(self, name: str) -> float | None:
        if name == STEP:
            return float(self.step)
        column = self._columns.get(name)
        return None if column is None or self._absent[column] else self._values[column]

    def across(self, text: str, node: tree.AcrossLayers) -> float | None:
        if text not in self._across:
            rows = range(self.place, self.place + 1)
            reading = Evaluation(self._block, Reader(None, ""), self.histories, {}, rows)
            found = reading.numbers(node, reading.grid(Level.RUN))
            self._across[text] = float(found.values[0]) if found.known[0] else None
        return self._across[text]


def lay_rows(rows: Sequence[SingleRow], key: WindowKey, sample: "Worth") -> None:
    """Put what the rows of a short block bring into a window of the run, all before any is asked
    for its window."""
    samples = [sample(row) for row in rows]
    if len(rows) == 1:
        rows[0].lay(key, samples[0])
        return
    histories = rows[0].histories
    history = histories.get(key)
    if history is None:
        history = histories[key] = key.new_history(1)
    room = key.size - history.num_held(0) if key.is_opening else len(rows)
    entering: list[float | None] = []
    for one in samples:
        enters = one is not None and room > 0 and math.isfinite(one)
        entering.append(one if enters else None)
        room -= enters
    history.lay_floats(entering, [row.step for row in rows])


Worth = Callable[[SingleRow], float | None]
Verdict = Callable[[SingleRow], bool | None]

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "==": lambda left, right: left == right,
    # Not `left != right`, which holds for NaN.
    "!=": lambda left, right: left < right or left > right,
}
_CHECK: Final[dict[str, Callable[[float], bool]]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
}
_COMPUTE: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    # Python raises where numpy, and the rule language, give infinity or NaN.
    "/": lambda left, right: left / right if right else float(np.divide(left, right)),
}
_OF_ONE: Final[dict[str, Callable[[float], float]]] = {
    "-": lambda value: -value,
    "abs": abs,
    "log10": lambda value: float(np.log10(value)),  # the last bit of math.log10 may be another
}


def can_be_compiled(condition: tree.Truth) -> bool:
    """Whether a condition of the run asks of layers nothing but what they are in the row itself."""
    across = (part for part in tree.walk(condition) if isinstance(part, tree.AcrossLayers))
    return not any(tree.windows_of(part.operand) for part in across)


class Compiler:
    """Makes functions of a row from the nodes of one rule of the run."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def verdict(self, node: tree.Truth) -> Verdict:
        match node:
            case tree.Comparison():
                return self._comparison(node)
            case tree.Check():
                check, operand = _CHECK[node.function], self.worth(node.operand)
                return lambda row: None if (value := operand(row)) is None else check(value)
            case tree.Not():
                verdict = self.verdict(node.operand)
                return lambda row: None if (holds := verdict(row)) is None else not holds
            case tree.Logic():
                return self._logic(node)

    def worth(self, node: tree.Number) -> Worth:
        match node:
            case tree.Constant():
                number = node.number
                return lambda row: number
            case tree.Series():
                name = node.name
                return lambda row: row.read(name)
            case tree.Negative():
                return self._of_one("-", node.operand)
            case tree.Elementwise():
                return self._of_one(node.function, node.operand)
            case _:
                return self._composed(node)

    def _composed(
        self, node: tree.Arithmetic | tree.Choice | tree.Windowed | tree.AcrossLayers
    ) -> Worth:
        match node:
            case tree.Arithmetic():
                return self._arithmetic(node)
            case tree.Choice():
                return self._choice(node)
            case tree.Windowed():
                return self._windowed(node)
            case tree.AcrossLayers():
                text = tree.render(node)
                return lambda row: row.across(text, node)

    def sample(self, node: tree.Expression) -> Worth:
        """What a window's operand is worth at a row."""
        if isinstance(node, tree.Number):
            return self.worth(node)
        verdict = self.verdict(node)
        return lambda row: None if (holds := verdict(row)) is None else float(holds)

    def brought(self, key: WindowKey) -> Worth:
        """What a row brings to the window."""
        sample = self.sample(key.operand)
        if not key.is_awaiting:
            return sample
        return lambda row: sample(row) if row.records_awaited(key) else None

    def _of_one(self, function: str, operand: tree.Number) -> Worth:
        compute, worth = _OF_ONE[function], self.worth(operand)
        return lambda row: None if (value := worth(row)) is None else compute(value)

    def _comparison(self, node: tree.Comparison) -> Verdict:
        compare = _COMPARE[node.operator]
        left, right = self.worth(node.left), self.worth(node.right)

        def verdict(row: SingleRow) -> bool | None:
            if (one := left(row)) is None or (other := right(row)) is None:
                return None
            return compare(one, other)

        return verdict

    def _logic(self, node: tree.Logic) -> Verdict:
        decided_by = node.operator == "or"
        operands = [self.verdict(operand) for operand in node.operands]

        def verdict(row: SingleRow) -> bool | None:
            undecided: bool | None = not decided_by
            for operand in operands:
                holds = operand(row)
                if holds is decided_by:
                    return decided_by
                if holds is None:
                    undecided = None
            return undecided

        return verdict

    def _arithmetic(self, node: tree.Arithmetic) -> Worth:
        compute = _COMPUTE[node.operator]
        left, right = self.worth(node.left), self.worth(node.right)

        def worth(row: SingleRow) -> float | None:
            if (one := left(row)) is None or (other := right(row)) is None:
                return None
            return compute(one, other)

        return worth

    def _choice(self, node: tree.Choice) -> Worth:
        condition = self.verdict(node.condition)
        then, otherwise = self.worth(node.then), self.worth(node.otherwise)

        def worth(row: SingleRow) -> float | None:
            holds = condition(row)
            if holds is None:
                return None
            return then(row) if holds else otherwise(row)

        return worth

    def _windowed(self, node: tree.Windowed) -> Worth:
        key, needed = self._reader.key(Level.RUN, node), self._reader.num_needed(node)
        sample = self.sample(node.operand)
        question = (key, node.function, node.parameter, needed)

        def worth(row: SingleRow) -> float | None:
            if question not in row.answers:
                row.answers[question] = _answer(row, question, sample)
            return row.answers[question]

        return worth


def _answer(row: SingleRow, question: Question, sample: Worth) -> float | None:
    key, function, parameter, needed = question
    history = row.histories.get(key)
    place = 0 if key.owner else row.place  # a window of one rule takes one row after another
    now = sample(row) if function in ("last", "age") or function in OF_CURRENT else None
    if function == "age":
        if now is not None and math.isfinite(now):
            return 0.0
        newest = NO_STEP if history is None else history.newest_step(place)
        return None if newest == NO_STEP else float(row.step - newest)
    if function == "last" and now is not None:
        return now
    filled = 0 if history is None else history.num_held(place)
    if history is None or filled < needed or not filled:
        return 0.0 if function == "count" else None
    if function not in OF_CURRENT:
        return float(of_windows(function, parameter, history.window(place, filled))[0])
    if now is None:
        return None
    window = history.window(place, filled)
    return float(of_windows(function, parameter, window, np.array([now]))[0])
