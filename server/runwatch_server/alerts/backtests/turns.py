"""One backtest, judged in turns of a quarter of a second."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from runwatch.rules import Rows
from runwatch_server.rules.backtest import Backtest, within
from runwatch_server.telemetry.committed_frames import CommittedFrame

_TURN_S: Final = 0.25
_PART_S: Final = 0.05
_FIRST_PART_ROWS: Final = 16
_MOST_PART_ROWS: Final = 128
"""Most rows in one part. The cost of a row shows only once the windows are full: a hundred rules
with four quantiles over 4096 rows take 0.5 ms a row before that, and 20 ms afterwards. The built-in
rules take 0.02 ms a row in frames of 4096 rows, and 0.09 ms in parts of 128."""


class BacktestTurns:
    """Runs a test over the steps from `first_step` to `last_step`, if given."""

    def __init__(self, test: Backtest, first_step: int | None, last_step: int | None) -> None:
        self.test = test
        self.used_s = 0.0
        """CPU seconds used so far."""
        self.step = 0
        """The last step judged so far."""
        self.has_more = False
        """Whether frames that were put are not yet judged."""
        self._first_step = first_step
        self._last_step = last_step
        self._part_rows = _FIRST_PART_ROWS
        self._parts: Iterator[Rows] = iter(())

    def put(self, frames: Sequence[CommittedFrame]) -> None:
        """Queue frames to be judged after those that were put before."""
        self._parts = chain(self._parts, self._parts_of(frames))
        self.has_more = True

    def take(self) -> None:
        """Judge for one turn. Call it in a thread, and from one thread at a time."""
        end_s = self.used_s + _TURN_S
        while self.used_s < end_s:
            began_s = time.thread_time()
            part = next(self._parts, None)
            if part is None:
                self.has_more = False
                return
            self.test.observe(part)
            self._note(part, time.thread_time() - began_s)

    def _note(self, part: Rows, took_s: float) -> None:
        self.used_s += took_s
        self.step = int(part.steps[-1])
        fitting = int(part.num_rows * _PART_S / max(took_s, 1e-6))
        self._part_rows = min(max(fitting, 1), _MOST_PART_ROWS)

    def _parts_of(self, frames: Sequence[CommittedFrame]) -> Iterator[Rows]:
        """Parts that are never empty, each with as many rows as take some hundredths of a
        second."""
        for stored in frames:
            rows = Rows.from_frame(stored.frame, stored.layout)
            # What came before the range would otherwise count in its first row.
            if rows.unplaced and stored.frame.first_step >= (self._first_step or 0):
                self.test.observe(rows)
            for wanted in within(rows, self._first_step, self._last_step):
                yield from self._cut(wanted)

    def _cut(self, rows: Rows) -> Iterator[Rows]:
        start = 0
        while start < rows.num_rows:
            stop = start + self._part_rows
            yield rows.between(start, stop)
            start = stop
