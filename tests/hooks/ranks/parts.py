"""Rows of two layers, of which every rank holds a part."""

import numpy as np

from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import ABSENT_32
from runwatch_hooks.statistics.totals import STATS
from runwatch_hooks.step.row import Row, Sharing

LAYOUT = Layout(layers=(Layer("a", (6,)), Layer("b", (6,))), stats=STATS)


def part_row(step: int, *, num_ranks: int = 2, **stats: list[float]) -> Row:
    """A row whose stats are of parts; what is not given was not recorded."""
    values = np.full((len(STATS), 2), ABSENT_32, np.float32)
    for name, numbers in stats.items():
        values[STATS.index(name)] = numbers
    sharing = Sharing(owners=(tuple(range(num_ranks)),) * 2, sizes=(2, 2))
    return Row(step, 0, float(step), {"loss": 1.0}, LAYOUT, values.reshape(-1), sharing)


def whole_row(step: int, **metrics: float) -> Row:
    return Row(step, 0, float(step), metrics)
