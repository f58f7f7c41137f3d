"""Layers that are measured by different stats, side by side: parameters, and modules' activations.

A layout takes the place of an earlier one with the same stats: the model has changed. One with
other stats tells of other things, now and then, and what is known of the first must not be lost
each time.
"""

from dataclasses import replace

import numpy as np

from runwatch.nonfinite import ABSENT_32
from runwatch.rules.observations import Rows

Names = tuple[str, ...]
FamiliesMemory = tuple[tuple[Names, tuple[int, ...]], ...]
"""Stats of each family, and the places of its layers among all."""


class LayerFamilies:
    """The layers of an attempt, by the stats that are taken of them."""

    def __init__(self) -> None:
        self._layers: dict[Names, Names] = {}

    def joined_with(self, stats: Names, layers: Names) -> Names:
        """All layers, once these have come under these stats; those known first stand first."""
        if self._layers.get(stats) != layers:
            self._layers[stats] = layers
        if len(self._layers) == 1:
            return layers
        return tuple(dict.fromkeys(name for one in self._layers.values() for name in one))

    def clear(self) -> None:
        self._layers.clear()

    def memory(self) -> FamiliesMemory:
        joined = dict.fromkeys(name for one in self._layers.values() for name in one)
        places = {name: place for place, name in enumerate(joined)}
        return tuple(
            (stats, tuple(places[name] for name in layers))
            for stats, layers in self._layers.items()
        )

    def recall(self, memory: FamiliesMemory, layers: Names) -> None:
        """`layers` are all of them, in the order in which `memory` counts them."""
        self._layers = {stats: tuple(layers[place] for place in places) for stats, places in memory}


def laid_among(rows: Rows, layers: Names) -> Rows:
    """The rows with their layers in their places among all; the others' are not recorded."""
    if not rows.layer_names or rows.layer_names == layers:
        return rows
    place = {name: column for column, name in enumerate(layers)}
    stats = np.full((rows.num_rows, len(rows.stat_names), len(layers)), ABSENT_32, np.float32)
    stats[:, :, [place[name] for name in rows.layer_names]] = rows.stats
    return replace(rows, layer_names=layers, stats=stats)
