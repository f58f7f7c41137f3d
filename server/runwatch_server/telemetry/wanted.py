"""The columns that are requested of stored frames, wherever the frames have them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runwatch_server.telemetry.packs.contents import Kind
from runwatch_server.telemetry.packs.unpacking import Place


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested columns: a metric, a layer's stat, or a stat of all layers."""

    name: str
    layouts: dict[str, tuple[int, int]]
    """Hash of a layout -> first layer and number of layers in it; empty for a metric."""
    stat_starts: dict[str, int]
    """Hash of a layout -> column at which the stat begins."""
    num_columns: int
    targets: Mapping[str, NDArray[np.int64] | None] = field(
        default_factory=dict[str, NDArray[np.int64] | None]
    )
    """Hash of a layout -> the columns of the answer in which its layers stand; if missing: all, in
    order."""

    @property
    def is_metric(self) -> bool:
        return not self.layouts

    def place(self, layout_hash: str, metric_names: tuple[str, ...]) -> Place | None:
        """Where frames of this layout, with these metrics, have the columns."""
        if self.is_metric:
            if self.name not in metric_names:
                return None
            column = 1 + metric_names.index(self.name)
            return Place(Kind.METRICS, range(column, column + 1))
        if layout_hash not in self.layouts:
            return None
        layer, num_layers = self.layouts[layout_hash]
        start = self.stat_starts[layout_hash] + layer
        columns = range(start, start + num_layers)
        return Place(Kind.STATS, columns, self.targets.get(layout_hash))
