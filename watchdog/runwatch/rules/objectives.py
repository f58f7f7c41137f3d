"""Finds the rows at which a program says that its loss means something else from now on.

The weight of an annealed term, the stage of a curriculum and the number of the current task change
what a loss of 2 means, and what was learned about the loss before no longer holds. The windows
over losses and gradients then start anew, as in a new attempt.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from runwatch.rules.observations import Rows

_NAME: Final = re.compile(
    r"(?:.*[/ ])?(?:objective|stage|task|task_id|difficulty"
    r"|curriculum(?:_(?:stage|step|level|difficulty))?"
    r"|(?:kl_)?beta|kl_(?:weight|coef|coeff|scale|factor)|(?:beta|lambda|w|weight)_kl"
    r"|anneal(?:ing)?(?:_(?:weight|factor|beta))?"
    r"|(?:[a-z0-9]+_)*loss_(?:weight|coef|coeff|scale_factor))",
    re.IGNORECASE,
)
"""`objective` is Runwatch's own name; programs log the others. `loss_scale` is not among them,
because the scaler divides it out again, nor `weight_decay`, which is not part of a logged loss."""

_LEAST_CHANGE: Final = 0.1
"""As a share of the number. A weight that grows by a tenth raises a loss by no more than a tenth,
and LossRising requires 0.15."""
_LASTING: Final = 8
"""A value is an objective of its own if the one before lasted for so many rows, or if so many
changes in one direction led to it (drift). It is the shortest window over the loss in the built-in
rules. Tasks that alternate row by row, and a number with noise, are part of one objective."""
_LASTING_IN_TURNS: Final = 128
"""The same for a value that comes back, because tasks take turns in blocks of rows. With shorter
blocks the windows of the built-in rules, most of 128 rows or fewer, would never fill, and their
rules would be blind; windows that hold several blocks know the level of each task."""
_MOST_KNOWN: Final = 64
_LEAST_MOVE: Final = 1e-6
"""As a share of the number: less is rounding."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The present value of one of these numbers."""

    value: float
    num_rows: int = 0
    """How long it has had this value."""
    drift: int = 0
    """How many changes in one direction led to it, negative if they led down."""
    known: frozenset[float] = frozenset()
    """Values that lasted before, as far as they are remembered."""
    latest: float | None = None
    """The latest value, as far as it is not the same; None from states saved before."""
    heading: int = 0
    """The direction of the last move, 1 or -1."""
    num_turns: int = 0
    """How often that direction has changed."""

    def ends_before(self, value: float) -> bool:
        """Whether a change to `value` ends an objective that has lasted."""
        least = _LASTING_IN_TURNS if value in self.known else _LASTING
        return self.num_rows >= least and not self.scatters

    @property
    def scatters(self) -> bool:
        """Whether the number goes up and down, as what is measured of a batch does: a loss that is
        logged as `objective`, a mean difficulty. A schedule turns once at most before it has
        changed, and a stage does not move at all."""
        return self.num_turns > 1

    @property
    def drifts(self) -> bool:
        return abs(self.drift) >= _LASTING

    def after(self, num_rows: int) -> "Stage":
        return replace(self, num_rows=self.num_rows + num_rows)

    def at(self, value: float) -> "Stage":
        """The same stage, at a value that is not another one."""
        before = self.value if self.latest is None else self.latest
        if abs(value - before) <= _LEAST_MOVE * abs(before):
            return self
        heading = 1 if value > before else -1
        num_turns = self.num_turns + (heading * self.heading < 0)
        return replace(self, latest=value, heading=heading, num_turns=num_turns)

    def followed_by(self, value: float) -> "Stage":
        direction = 1 if value > self.value else -1
        goes_on = self.drift * direction > 0 and not self.scatters
        drift = direction + (self.drift if goes_on else 0)
        return Stage(value, drift=drift, known=self._known_after())

    def _known_after(self) -> frozenset[float]:
        if self.num_rows < _LASTING or len(self.known) >= _MOST_KNOWN:
            return self.known
        return self.known | {self.value}

    def is_other_than(self, value: float) -> bool:
        """Whether the number has changed. Whole numbers count stages, so each is another."""
        if value.is_integer() and self.value.is_integer():
            return value != self.value
        return abs(value - self.value) > _LEAST_CHANGE * abs(self.value)


_REWOUND: Final = Stage(math.nan, num_rows=_LASTING)
"""Of a value that is not known yet."""


class Objectives:
    """Follows the numbers that say what the present attempt trains."""

    def __init__(self) -> None:
        self._stages: dict[str, Stage] = {}

    def parts_of(self, rows: Rows) -> list[tuple[Rows, bool]]:
        """The rows, cut where the objective changes; each part with whether it begins another."""
        names = objective_names(rows.metric_names)
        starts = {row for name in names for row in self._changes(rows, name)}
        if not starts:
            return [(rows, False)]
        edges = sorted({0, *starts, rows.num_rows})
        return [(rows.between(*edge), edge[0] in starts) for edge in pairwise(edges)]

    def _changes(self, rows: Rows, name: str) -> Iterator[int]:
        """The rows at which this number begins another objective."""
        values = rows.metrics[:, rows.metric_columns[name]]
        stage: Stage | None = self._stages.get(name)
        counted = 0
        for row in np.flatnonzero(np.isfinite(values)).tolist():
            value = float(values[row])
            before = None if stage is None else stage.after(row - counted)
            counted = row
            if before is None:
                stage = Stage(value)
            elif math.isnan(before.value):
                stage = replace(before, value=value)
            elif not before.is_other_than(value):
                stage = before.at(value)
            else:
                stage = before.followed_by(value)
                if before.ends_before(value) or stage.drifts:
                    yield row
        if stage is not None:
            self._stages[name] = stage.after(rows.num_rows - counted)

    def rewind(self) -> None:
        """After a rollback. Each number has the value next that it had before the rows that were
        undone, so that this has lasted; and what those rows brought is not known any more."""
        self._stages = dict.fromkeys(self._stages, _REWOUND)

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
    """The metrics that say what is trained. Cached, because a run asks this at every step."""
    return tuple(name for name in metric_names if _NAME.fullmatch(name) is not None)
