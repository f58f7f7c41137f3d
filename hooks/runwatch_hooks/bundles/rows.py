"""The last rows before a fault, in the form stored in a bundle."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from runwatch.layouts import Layout
from runwatch_hooks.state.tree import Mapped
from runwatch_hooks.step.row import Row


def rows_tree(rows: Sequence[Row]) -> Mapped:
    """`metrics`: one dict for each row. `stats`: for each layout `steps` (N,), `layers`, `stats`
    and `values` (N, stats, layers), where `runwatch.nonfinite.ABSENT_32` means not recorded."""
    with_layers = [row for row in rows if row.layout is not None and row.stats is not None]
    return {
        "metrics": [{"step": row.step, "segment": row.segment, **row.metrics} for row in rows],
        "stats": [
            _block(layout, list(ours))
            for layout, ours in groupby(with_layers, key=lambda row: row.layout)
            if layout is not None
        ],
    }


def _block(layout: Layout, rows: list[Row]) -> Mapped:
    values = np.stack([row.stats for row in rows if row.stats is not None])
    return {
        "steps": [row.step for row in rows],
        "layers": list(layout.layer_names),
        "stats": list(layout.stats),
        "values": values.reshape(len(rows), len(layout.stats), -1),
    }
