"""Counted events that came in a frame without rows: they count in the first row after them.

A trainer sends what happened at once, and its row when the step has ended and its numbers have come
from the device. With steps of seconds the two are in different frames, and how rows are cut into
frames must change nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.rules.observations import Rows

UnplacedMemory = tuple[int, Mapping[str, int]]
"""The attempt that they are of, and how many there are of each kind."""


@dataclass(slots=True)
class UnplacedEvents:
    attempt: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])

    def note(self, rows: Rows) -> None:
        """Keep the events of a frame without rows, and forget those of another attempt."""
        if rows.attempt != self.attempt:
            self.attempt = rows.attempt
            self.counts.clear()
        self.counts.update(rows.unplaced)

    def put_on(self, rows: Rows) -> Rows:
        """The rows, with what waits counted in their first one."""
        if not self.counts:
            return rows
        counts, self.counts = self.counts, Counter[str]()
        if rows.attempt != self.attempt:
            return rows
        missing = tuple(name for name in counts if name not in rows.metric_names)
        empty = np.full((rows.num_rows, len(missing)), ABSENT_64)
        names = (*rows.metric_names, *missing)
        metrics = np.concatenate([rows.metrics, empty], axis=1)
        for name, number in counts.items():
            column = names.index(name)
            before = 0.0 if is_absent(metrics[:1, column])[0] else metrics[0, column]
            metrics[0, column] = before + number
        return replace(rows, metric_names=names, metrics=metrics)

    def memory(self) -> UnplacedMemory:
        return self.attempt, dict(self.counts)

    @classmethod
    def of(cls, memory: UnplacedMemory) -> "UnplacedEvents":
        attempt, counts = memory
        return cls(attempt, Counter(counts))
