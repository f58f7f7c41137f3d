"""Where a program says that its loss means something else from here on.

The weight of a term that is annealed, the stage of a curriculum, the task that is trained now: such
a number changes what a loss of 2 means, and what was learned of the loss before it no longer holds.
The windows over losses and gradients then begin anew, as they do in a new attempt.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from runwatch.rules.observations import Rows

LOSS_SERIES: Final = frozenset(("loss", "val_loss", "grad_norm", "grad_absmax"))
"""What another objective gives another level: losses, and the gradients that they bring."""

_NAME: Final = re.compile(
    r"(?:.*[/ ])?(?:objective|stage|task|task_id|difficulty"
    r"|curriculum(?:_(?:stage|step|level|difficulty))?"
    r"|(?:kl_)?beta|kl_(?:weight|coef|coeff|scale|factor)|(?:beta|lambda|w|weight)_kl"
    r"|anneal(?:ing)?(?:_(?:weight|factor|beta))?"
    r"|(?:[a-z0-9]+_)*loss_(?:weight|coef|coeff|scale_factor))",
    re.IGNORECASE,
)
"""`objective` is ours; the others are what programs log. Neither `loss_scale`, which gradients are
rid of again, nor `weight_decay`, which is no part of the loss that is logged."""

_LEAST_CHANGE: Final = 0.1
"""As a share of the number. A weight that grows by a tenth raises a loss by no more than a tenth,
and LossRising asks for 0.15."""
_LASTING: Final = 8
"""Rows for which a number lasts, or changes in one direction by which it drifts, or it is no
objective of its own: the shortest window over the loss that the built-in rules take. Tasks that
take turns row by row, and a weight that scatters, are part of one objective."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one of these numbers says at present."""

    value: float
    num_rows: int = 0
    """For which it has said so."""
    drift: int = 0
    """How many changes in one direction led to it, negative where they led down."""

    @property
    def has_lasted(self) -> bool:
        return self.num_rows >= _LASTING

    @property
    def drifts(self) -> bool:
        return abs(self.drift) >= _LASTING

    def after(self, num_rows: int) -> "Stage":
        return replace(self, num_rows=self.num_rows + num_rows)

    def followed_by(self, value: float) -> "Stage":
        direction = 1 if value > self.value else -1
        return Stage(value, drift=direction + (self.drift if self.drift * direction > 0 else 0))

    def is_other_than(self, value: float) -> bool:
        """Whole numbers count stages: each is another."""
        if value.is_integer() and self.value.is_integer():
            return value != self.value
        return abs(value - self.value) > _LEAST_CHANGE * abs(self.value)


class Objectives:
    """The numbers of the present attempt that say what is trained."""

    def __init__(self) -> None:
        self._stages: dict[str, Stage] = {}

    def parts_of(self, rows: Rows) -> list[tuple[Rows, bool]]:
        """The rows, cut where the objective changes, and whether each part begins another one."""
        names = objective_names(rows.metric_names)
        starts = {row for name in names for row in self._changes(rows, name)}
        if not starts:
            return [(rows, False)]
        edges = sorted({0, *starts, rows.num_rows})
        return [(rows.between(*edge), edge[0] in starts) for edge in pairwise(edges)]

    def _changes(self, rows: Rows, name: str) -> Iterator[int]:
        """The rows at which this number begins to say another thing."""
        values = rows.metrics[:, rows.metric_columns[name]]
        stage, counted = self._stages.get(name), 0
        for row in np.flatnonzero(np.isfinite(values)).tolist():
            value = float(values[row])
            before = None if stage is None else stage.after(row - counted)
            counted = row
            if before is None:
                stage = Stage(value)
            elif not before.is_other_than(value):
                stage = before
            else:
                stage = before.followed_by(value)
                if before.has_lasted or stage.drifts:
                    yield row
        if stage is not None:
            self._stages[name] = stage.after(rows.num_rows - counted)

    def clear(self) -> None:
        """After the end of the attempt."""
        self._stages.clear()

    def memory(self) -> dict[str, Stage]:
        return dict(self._stages)

    def recall(self, stages: Mapping[str, Stage]) -> None:
        """Take back what `memory` gave."""
        self._stages = dict(stages)


@lru_cache(maxsize=256)
def objective_names(metric_names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a run's metrics that say what is trained. (Kept, for a run asks this of the same
    names at each of its steps.)"""
    return tuple(name for name in metric_names if _NAME.fullmatch(name) is not None)
