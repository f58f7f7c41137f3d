"""What a rule can know of a run that is not in its rows: how the attempt before ended, and what its
configuration or its layers say. Each is a series that has one value at every row.

- `lr_before`, `loss_before`: the median of the last 8 values that the attempt before recorded.
- `step_before`: the last step of the attempt before.
- `loss_mad_before`: how its last 32 losses scattered, as their median absolute deviation.
- `loss_of_chance`: the loss of guessing among equal classes, ln of the number of classes. Where the
  configuration names none, the size of the model's head does, if the first losses agree with it;
  the rows up to these have no such value.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_64
from runwatch.rules.observations import Rows

LOSS_OF_CHANCE: Final = "loss_of_chance"
_REMEMBERED: Final[Mapping[str, int]] = {"lr": 8, "loss": 32}
"""How many of the last values of a series the next attempt is told about."""
_NUM_AT_END: Final = 8
_FIRST_LOSSES: Final = "first_losses"
_SIZES: Final = "output_sizes"
_NUM_FIRST: Final = 8
_NEAR_CHANCE: Final = 0.15
"""Of the loss of chance: so far from it the first losses of a classifier are that was just
initialised. A regression whose loss happens to be there is none by its last layer's size."""
_NOWHERE: Final = np.empty(0, np.intp)
_NUM_CLASSES: Final = ("num_classes", "n_classes", "num_labels", "vocab_size", "n_vocab")


@dataclass(slots=True)
class Background:
    """What is known, and what of the present attempt the next one will want to know."""

    known: dict[str, float] = field(default_factory=dict[str, float])
    """The series that rules can read."""
    latest: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """The last finite values of the present attempt."""

    def put_behind(self, rows: Rows) -> Rows:
        """The rows with a column for each of what is known; what a row records itself stays."""
        since = self._find_chance(rows)
        names = tuple(name for name in self.known if name not in rows.metric_names)
        if not names:
            return rows
        constants = np.array([[self.known[name] for name in names]])
        behind = np.repeat(constants, rows.num_rows, axis=0)
        if LOSS_OF_CHANCE in names:
            behind[:since, names.index(LOSS_OF_CHANCE)] = ABSENT_64
        metrics = np.concatenate([rows.metrics, behind], axis=1)
        return replace(rows, metric_names=(*rows.metric_names, *names), metrics=metrics)

    def _find_chance(self, rows: Rows) -> int:
        """Find the loss of chance, if it is not known yet and these rows hold what was missing; the
        row from which on it is known."""
        if LOSS_OF_CHANCE in self.known:
            return 0
        self.latest[_SIZES] = self.latest.get(_SIZES) or [float(n) for n in rows.output_sizes]
        first = self.latest.setdefault(_FIRST_LOSSES, [])
        places = _finite_places(rows, "loss")[: _NUM_FIRST - len(first)]
        if places.size:
            first += rows.metrics[places, rows.metric_columns["loss"]].tolist()
        if len(first) == _NUM_FIRST and (chance := _chance_near(first, self.latest[_SIZES])):
            self.known[LOSS_OF_CHANCE] = chance
        return int(places[-1]) if places.size else 0

    def note(self, rows: Rows) -> None:
        """Remember the end of these rows."""
        self.latest["step"] = [float(rows.steps[-1])]
        for name, depth in _REMEMBERED.items():
            places = _finite_places(rows, name)[-depth:]
            if not places.size:
                continue
            finite = rows.metrics[places, rows.metric_columns[name]].tolist()
            self.latest[name] = [*self.latest.get(name, ()), *finite][-depth:]

    def next_attempt(self) -> dict[str, float]:
        """What the next attempt knows of this one, and what holds for the run."""
        kept = {name: value for name, value in self.known.items() if name == LOSS_OF_CHANCE}
        ends = {
            f"{name}_before": median(self.latest[name][-_NUM_AT_END:])
            for name in ("step", *_REMEMBERED)
            if self.latest.get(name)
        }
        if losses := self.latest.get("loss"):
            middle = median(losses)
            ends["loss_mad_before"] = median(abs(loss - middle) for loss in losses)
        return kept | ends

    def end_attempt(self) -> None:
        self.known = self.next_attempt()
        self.latest = {}


def _finite_places(rows: Rows, name: str) -> NDArray[np.intp]:
    """The rows that recorded a finite value of a metric."""
    column = rows.metric_columns.get(name)
    return np.flatnonzero(np.isfinite(rows.metrics[:, column])) if column is not None else _NOWHERE


def _chance_near(losses: Sequence[float], output_sizes: Sequence[float]) -> float | None:
    """The loss of guessing among one of these numbers of classes that the losses are nearest to;
    None if they are near none."""
    loss = median(losses)
    chances = [math.log(size) for size in output_sizes if size > 1]
    near = [chance for chance in chances if abs(loss / chance - 1.0) < _NEAR_CHANCE]
    return min(near, key=lambda chance: abs(loss - chance), default=None)


def known_from(config: Mapping[str, object]) -> dict[str, float]:
    """What a run's configuration says to rules. The first number of classes that it names counts;
    a `vocab_size` is one as well, for the loss of a language model is over its vocabulary."""
    found: Sequence[object] = [config[name] for name in _NUM_CLASSES if name in config]
    for value in found:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1:
            return {LOSS_OF_CHANCE: math.log(value)} if math.isfinite(value) else {}
    return {}
