"""What a rule may know of a run beside its rows: how the attempt before ended, and what its
configuration says. Each is a series that has one value at every row.

- `lr_before`, `loss_before`: the median of the last 8 values that the attempt before recorded.
- `loss_of_chance`: the loss of guessing among equal classes, ln of the number of classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

import numpy as np

from runwatch.rules.observations import Rows

LOSS_OF_CHANCE: Final = "loss_of_chance"
_REMEMBERED: Final[Mapping[str, str]] = {"lr": "lr_before", "loss": "loss_before"}
_NUM_REMEMBERED: Final = 8
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
        names = tuple(name for name in self.known if name not in rows.metric_names)
        if not names:
            return rows
        constants = np.array([[self.known[name] for name in names]])
        metrics = np.concatenate(
            [rows.metrics, np.repeat(constants, rows.num_rows, axis=0)], axis=1
        )
        return replace(rows, metric_names=(*rows.metric_names, *names), metrics=metrics)

    def note(self, rows: Rows) -> None:
        """Remember the end of these rows."""
        for name in _REMEMBERED:
            column = rows.metric_columns.get(name)
            if column is None:
                continue
            values = rows.metrics[:, column]
            finite = values[np.isfinite(values)][-_NUM_REMEMBERED:].tolist()
            self.latest[name] = [*self.latest.get(name, ()), *finite][-_NUM_REMEMBERED:]

    def next_attempt(self) -> dict[str, float]:
        """What the next attempt knows of this one, and what holds for the run."""
        kept = {name: value for name, value in self.known.items() if name == LOSS_OF_CHANCE}
        ends = {
            after: median(self.latest[name])
            for name, after in _REMEMBERED.items()
            if self.latest.get(name)
        }
        return kept | ends

    def end_attempt(self) -> None:
        self.known = self.next_attempt()
        self.latest = {}


def known_from(config: Mapping[str, object]) -> dict[str, float]:
    """What a run's configuration says to rules. The first number of classes that it names counts;
    a `vocab_size` is one as well, for the loss of a language model is over its vocabulary."""
    found: Sequence[object] = [config[name] for name in _NUM_CLASSES if name in config]
    for value in found:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1:
            return {LOSS_OF_CHANCE: math.log(value)} if math.isfinite(value) else {}
    return {}
