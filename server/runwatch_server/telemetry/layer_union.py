"""Combines the layers of several layouts as the columns of one table. No I/O.

Legend: L layers of one layout, C columns.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import MAX_LAYERS, Layout


def united(layouts: Sequence[Layout]) -> tuple[str, ...]:
    """The names of all layers: those of the newest layout in its order, and each layer that only an
    older one has after its predecessor there. `layouts`: oldest first, at least one.

    The result has at most as many layers as one layout may have; older layouts beyond that are left
    out.
    """
    names: Sequence[str] = layouts[-1].layer_names
    for layout in reversed(layouts[:-1]):
        more = _merged(names, layout.layer_names)
        if len(more) > MAX_LAYERS:
            break
        names = more
    return tuple(names)


def targets_of(
    layouts: Sequence[Layout], names: Sequence[str]
) -> Mapping[str, NDArray[np.int64] | None]:
    """For each layout, by its hash, whose layers are all among the names: (L,) their columns; None
    if these are all names, in order."""
    columns = {name: column for column, name in enumerate(names)}
    return {
        layout.hash: None
        if layout.layer_names == tuple(names)
        else np.array([columns[name] for name in layout.layer_names], np.int64)
        for layout in layouts
        if columns.keys() >= set(layout.layer_names)
    }


def columns_among(names: Sequence[str], wanted: Collection[str]) -> NDArray[np.int64]:
    """The indices of the wanted names, in the order of `names`."""
    known = frozenset(wanted)
    return np.array([column for column, name in enumerate(names) if name in known], np.int64)


def _merged(newer: Sequence[str], older: Sequence[str]) -> list[str]:
    known = set(newer)
    behind: dict[str | None, list[str]] = {}
    before: str | None = None
    for name in older:
        if name in known:
            before = name
        else:
            behind.setdefault(before, []).append(name)
    merged = list(behind.get(None, ()))
    for name in newer:
        merged += (name, *behind.get(name, ()))
    return merged
