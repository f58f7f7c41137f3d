"""Layers of several layouts as the columns of one table; pure.

Legend: L layers of one layout, C columns.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import MAX_LAYERS, Layout


def united(layouts: Sequence[Layout]) -> tuple[str, ...]:
    """The names of all layers: the newest layout's in its order, each that only an older one has
    behind the layer that it stood behind there. `layouts`: oldest first, at least one.

    Together at most as many as one layout may have: older layouts beyond are left out.
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
    """By the hash of each layout whose layers are all among the names: (L,) their columns; None
    where these are all of them, in order."""
    columns = {name: column for column, name in enumerate(names)}
    return {
        layout.hash: None
        if layout.layer_names == tuple(names)
        else np.array([columns[name] for name in layout.layer_names], np.int64)
        for layout in layouts
        if columns.keys() >= set(layout.layer_names)
    }


def columns_among(names: Sequence[str], wanted: Collection[str]) -> NDArray[np.int64]:
    """The columns whose names are wanted, in their order."""
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
