"""What a rule can know of a run that is not in its rows: how the attempt before ended, and what its
configuration says. Each is a series that has one value at every row.

- `lr_before`, `loss_before`: the median of the last 8 values that the attempt before recorded.
- `step_before`: the last step of the attempt before.
- `loss_mad_before`: how its last 32 losses scattered, as their median absolute deviation.
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
_REMEMBERED: Final[Mapping[str, int]] = {"lr": 8, "loss": 32}
"""How many of the last values of a series the next attempt is told about."""
_NUM_AT_END: Final = 8
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
        self.latest["step"] = [float(rows.steps[-1])]
        for name, depth in _REMEMBERED.items():
            column = rows.metric_columns.get(name)
            if column is None:
                continue
            values = rows.metrics[:, column]
            finite = values[np.isfinite(values)][-depth:].tolist()
            self.latest[name] = [*self.latest.get(name, ()), *finite][-depth:]

    def next_attempt(self) -> dict[str, float]:
        """What the next attempt knows of this one, and what holds for the run."""
        kept = {name: value for name, value in self.known.items() if name == LOSS_OF_CHANCE}
        ends = {
            f"{name}_before": median(values[-_NUM_AT_END:])
            for name, values in self.latest.items()
            if values
        }
        if losses := self.latest.get("loss"):
            middle = median(losses)
            ends["loss_mad_before"] = median(abs(loss - middle) for loss in losses)
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
