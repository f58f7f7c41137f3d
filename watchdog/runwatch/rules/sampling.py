"""Which rows bring a window a sample.

A window is counted in samples that were recorded. What a rule asks of other windows is known at
every row once these are full, also at one that recorded nothing of them: `median(loss, 8)` is known
where only a `val_loss` came. Such a row brings no sample, or a window over a window would hold the
same number again and again, as often as a program logs something else.

Legend: K points, U distinct rows among them, L layers.
"""

from functools import reduce

import numpy as np

from runwatch.rules import expressions as tree
from runwatch.rules.block import Block, Level, Points, points_of_rows
from runwatch.rules.names import STEP
from runwatch.rules.statistics import OF_CURRENT
from runwatch.rules.windows import Bools


def series_awaited(operand: tree.Expression) -> frozenset[str]:
    """The series of which a row must record one to bring a sample; none where each row brings one,
    for the step goes on with every row, and so does `age`, which counts from it."""
    if isinstance(operand, tree.Series):
        return frozenset({operand.name}) - {STEP}
    if _counts_steps(operand):
        return frozenset()
    return frozenset[str]().union(*map(series_awaited, tree.children(operand)))


def must_be_awaited(operand: tree.Expression) -> bool:
    """Whether a row without its series would bring a window over it a sample, unless kept out."""
    return bool(series_awaited(operand)) and _outlasts_its_series(operand)


def records_awaited(block: Block, operand: tree.Expression, points: Points) -> Bools:
    """(K,) whether each point recorded one of the series that are awaited: of a layer's stats, that
    this layer did; of what is asked of all layers at once, that any did."""
    if isinstance(operand, tree.Series) and operand.name != STEP:
        return block.read(operand.name, points).known
    if isinstance(operand, tree.AcrossLayers):
        rows_U, place_K = np.unique(points.rows, return_inverse=True)
        of_layers = points_of_rows(Level.LAYER, rows_U, block.num_layers)
        recorded_UL = records_awaited(block, operand.operand, of_layers).reshape(len(rows_U), -1)
        recorded_U: Bools = np.any(recorded_UL, axis=1)
        return recorded_U[place_K]
    parts = () if _counts_steps(operand) else tree.children(operand)
    recorded = [records_awaited(block, part, points) for part in parts]
    return reduce(np.logical_or, recorded) if recorded else np.zeros(points.size, np.bool_)


def _outlasts_its_series(node: tree.Expression) -> bool:
    """Whether it can have a value at a row that recorded none of the series in it."""
    match node:
        case tree.Series():
            return node.name == STEP
        case tree.Windowed() if node.function not in OF_CURRENT:
            return True
        case tree.Logic():  # what is known may decide it alone
            return any(map(_outlasts_its_series, node.operands))
        case _:
            return all(map(_outlasts_its_series, tree.children(node)))


def _counts_steps(node: tree.Expression) -> bool:
    return isinstance(node, tree.Windowed) and node.function == "age"
