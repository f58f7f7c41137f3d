"""Finds the layers that stand out: non-finite ones, then those farthest above their usual value."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

from runwatch.nonfinite import JsonNumber, from_json, to_json

MOST_LAYERS: Final = 8


class LayerOverview(msgspec.Struct, frozen=True):
    """How a layer's newest values compare with its usual ones."""

    layer: str
    stat: str
    value: JsonNumber
    """The largest in the newest bucket of steps; "NaN" if one of them was not finite."""
    times_usual: float | None
    """The value divided by its median over the steps before; None if that says nothing."""


def worst_layers(
    stat: str,
    layers: Sequence[str],
    values: Sequence[Sequence[JsonNumber]],
    counts: Sequence[Sequence[JsonNumber]],
) -> list[LayerOverview]:
    """The layers with non-finite values in the newest bucket, then those farthest above their
    median.

    `values` are the heat map's rows of the stat, one per layer; `counts` those of the number of
    elements that were NaN or infinite, which the stat leaves out; empty if it was not counted.
    """
    broken = {index for index, row in enumerate(counts) if row and (number_of(row[-1]) or 0) > 0}
    found = [
        _layer_overview(name, stat, [number_of(value) for value in row], is_broken=index in broken)
        for index, (name, row) in enumerate(zip(layers, values, strict=True))
        if row and (index in broken or row[-1] is not None)
    ]
    return sorted(found, key=_calm)[:MOST_LAYERS]


def _layer_overview(
    name: str, stat: str, row: Sequence[float | None], *, is_broken: bool
) -> LayerOverview:
    before = [value for value in row[:-1] if value is not None and math.isfinite(value)]
    usual = median(before) if before else 0.0
    newest = math.nan if is_broken or row[-1] is None else row[-1]
    is_known = usual > 0 and math.isfinite(newest)
    return LayerOverview(name, stat, to_json(newest), newest / usual if is_known else None)


def _calm(layer: LayerOverview) -> tuple[bool, float]:
    """Sort key: the worst first."""
    return (not isinstance(layer.value, str), -(layer.times_usual or 0.0))


def number_of(value: JsonNumber) -> float | None:
    """A value from an answer; None is a gap."""
    return None if value is None else from_json(value)
