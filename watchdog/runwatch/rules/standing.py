"""How one rule stands: which layers fail and since when, and the alert that they make together.

A rule over layers gives one alert, however many of them fail; `for` is counted for each layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.alerts import Alert, AlertState, Change, Moment, Span, advance, end, rewind
from runwatch.rules.episodes import Culprits, Episode, Peak, Widest, is_worse
from runwatch.rules.recurrence import Recurrence, is_another, keep_of
from runwatch.rules.reporting import name_layers, transition
from runwatch.rules.rule import Rule
from runwatch.rules.transitions import Transition
from runwatch.rules.windows import Bools, Floats, Indices, Ints


@dataclass(frozen=True, slots=True)
class StandingMemory:
    """All of a rule's state, as values."""

    alert: Alert | None
    episode: Episode | None
    failing: tuple[bool, ...]
    onset_steps: tuple[int, ...]
    onset_times: tuple[float, ...]
    streaks: tuple[int, ...]
    recurrence: Recurrence = field(default_factory=Recurrence)
    num_judged: int = 0
    onset_rows: tuple[int, ...] = ()
    """Absent, as the number above, from states saved before spans could be counted in rows."""


BYTES_PER_COLUMN: Final = 33
"""Memory of a column of one rule."""


class Standing:
    """The state of one rule between rows. L columns: layers, or one for the run."""

    def __init__(self, rule: Rule, columns: tuple[str, ...]) -> None:
        self.rule = rule
        self.columns = columns
        self.alert: Alert | None = None
        self.episode: Episode | None = None
        num_columns = len(columns)
        self.failing_L = np.zeros(num_columns, np.bool_)
        self.onset_steps_L: Ints = np.zeros(num_columns, np.int64)
        self.onset_times_L: NDArray[np.float64] = np.zeros(num_columns)
        self.onset_rows_L: Ints = np.zeros(num_columns, np.int64)
        self.streaks_L: Ints = np.zeros(num_columns, np.int64)
        """Failing verdicts in a row, for `relearn_after`."""
        self._num_judged = 0
        """Rows with a verdict since the rule was quiet: no span of rows runs before that."""
        self._recurrence = Recurrence()

    @property
    def is_quiet(self) -> bool:
        return self.alert is None and not self.any_fails

    @property
    def failing_L(self) -> Bools:
        return self._failing_L

    @failing_L.setter
    def failing_L(self, failing_L: Bools) -> None:
        self._failing_L = failing_L
        self.any_fails = bool(failing_L.any())  # asked for at each row of each rule

    def judge(self, verdicts_L: Bools, known_L: Bools, now: Moment) -> Iterator[Change]:
        """The changes that one row brings: none, one, or an end and a new beginning."""
        if not known_L.any():
            return
        self._num_judged = 1 if self.is_quiet else self._num_judged + 1
        now = self._counted(now)
        failing_L = np.where(known_L, verdicts_L, self.failing_L)
        began_L = failing_L & ~self.failing_L
        self.onset_steps_L[began_L] = now.step
        self.onset_times_L[began_L] = now.at
        self.onset_rows_L[began_L] = now.row
        self.failing_L = failing_L
        onset = self._onset(failing_L)
        if self._is_another_beginning(onset):
            yield self._become(advance(self.alert, False, now))
        if self.rule.keep_doublings:
            yield from self._end_for_others(now)
        # A layer of which this row does not tell goes on failing, and ripens by no other's verdict.
        judged = self._onset(failing_L & known_L)
        is_open_question = onset is not None and judged is None and self._is_pending
        change = advance(
            self.alert,
            None if is_open_question else onset is not None,
            now,
            hold=self.rule.for_,
            keep=self._keep,
            onset=onset,
            held_since=judged,
        )
        yield self._become(change)

    def _end_for_others(self, now: Moment) -> Iterator[Change]:
        """End an alert that is kept for longer than it had been at first, where layers fail that
        are none of its own."""
        if not self.any_fails:
            return
        failing = [name for name in compress(self.columns, self.failing_L.tolist()) if name]
        if is_another(self.rule, self._recurrence, self.alert, failing, now):
            yield self._become(advance(self.alert, False, now, keep=self.rule.keep_firing_for))
        self._recurrence = self._recurrence.with_failing(failing)

    @property
    def _keep(self) -> Span:
        num_clearings = 0 if self.episode is None else self.episode.num_clearings
        return keep_of(self.rule, self._recurrence, num_clearings)

    @property
    def has_streaks(self) -> bool:
        return bool(self.streaks_L.any())

    def count_streaks(self, verdicts_TL: Bools, known_TL: Bools) -> None:
        """Note rows of which only the last may hold failing verdicts."""
        if not verdicts_TL[-1].any() and not self.has_streaks:
            return
        cleared_L = (known_TL & ~verdicts_TL).any(axis=0)
        fails_L = known_TL[-1] & verdicts_TL[-1]
        self.streaks_L = np.where(cleared_L, 0, self.streaks_L) + fails_L

    def rewind(self, first_step: int, now: Moment) -> Change:
        """After a rollback: the steps in which layers were failing were undone."""
        self.failing_L = np.zeros_like(self.failing_L)
        self.streaks_L = np.zeros_like(self.streaks_L)
        return self._become(rewind(self.alert, first_step, self._counted(now)))

    def end(self, now: Moment) -> Change:
        """After the end of the attempt."""
        self._recurrence = Recurrence()
        self.failing_L = np.zeros_like(self.failing_L)
        self.streaks_L = np.zeros_like(self.streaks_L)
        return self._become(end(self.alert, now))

    def reordered(self, columns: tuple[str, ...], sources: list[int | None]) -> "Standing":
        """The same for other columns: each takes an old one's state, or a fresh one."""
        standing = Standing(self.rule, columns)
        standing.alert, standing.episode = self.alert, self.episode
        standing._recurrence, standing._num_judged = self._recurrence, self._num_judged
        failing_L = standing.failing_L.copy()
        for column, source in enumerate(sources):
            if source is not None:
                failing_L[column] = self.failing_L[source]
                standing.onset_steps_L[column] = self.onset_steps_L[source]
                standing.onset_times_L[column] = self.onset_times_L[source]
                standing.onset_rows_L[column] = self.onset_rows_L[source]
                standing.streaks_L[column] = self.streaks_L[source]
        standing.failing_L = failing_L
        return standing

    def transition_of(
        self, change: Change, before: Alert | None, now: Moment, rank: int
    ) -> Transition:
        """The transition of a change that is news. With the alert its episode ends, so that the
        next one, even if it begins at the same step after a rollback, is another."""
        assert self.episode is not None
        found = transition(self.rule, change, before, self.episode, now, rank)
        if self.alert is not None and self.alert.state.is_open:
            peak = None if self.episode.peak is None else self.episode.peak.value
            num_layers = self.episode.widest.num_layers
            self.episode = replace(self.episode, told_peak=peak, told_layers=num_layers)
        if self.alert is None:
            self.episode = None
        return found

    def refresh_episode(self, culprits: Culprits, value: float | None) -> None:
        """Say who fails now, and how badly (as was told before, where the row recorded none of
        them); who was first, or that nobody was, stays."""
        assert self.episode is not None
        known = self.episode.culprits
        first = known.first if known.origin else known.first or culprits.first
        if known.origin:
            culprits = replace(culprits, origin=known.origin, why=known.why)
        culprits = replace(culprits, first=first)
        value = self.episode.value if value is None else value
        self.episode = replace(self.episode, culprits=culprits, value=value)

    def watch_peak(self, step: int, shown_F: Indices, values_F: Floats, *, downward: bool) -> None:
        """Note the worst value of the failing columns that a row recorded."""
        assert self.episode is not None
        nan_F = np.isnan(values_F)
        worst = int(
            np.argmax(nan_F)
            if nan_F.any()
            else np.argmin(values_F) if downward else np.argmax(values_F)
        )  # fmt: skip
        value, peak = float(values_F[worst]), self.episode.peak
        if peak is None or is_worse(value, peak.value, downward=downward):
            peak = Peak(value, step, self.columns[int(shown_F[worst])] or None)
            self.episode = replace(self.episode, peak=peak)

    def watch_width(self, excess_C: Floats) -> None:
        """Note the names of the failing columns where they are the most."""
        assert self.episode is not None
        num_layers = sum(bool(self.columns[int(c)]) for c in np.flatnonzero(self.failing_L))
        if num_layers > self.episode.widest.num_layers:
            named = name_layers(
                self.columns, self.failing_L, self.failing_L, excess_C, backward=False
            )
            self.episode = replace(self.episode, widest=Widest(named.layers, num_layers))

    @property
    def is_flapping(self) -> bool:
        """Whether the alert came and went so often that this is no news any more."""
        return self.episode is not None and self.episode.is_flapping

    def count_clearing(self) -> None:
        assert self.episode is not None
        self.episode = replace(self.episode, num_clearings=self.episode.num_clearings + 1)

    def memory(self) -> StandingMemory:
        return StandingMemory(
            alert=self.alert,
            episode=self.episode,
            failing=tuple(self.failing_L.tolist()),
            onset_steps=tuple(self.onset_steps_L.tolist()),
            onset_times=tuple(self.onset_times_L.tolist()),
            streaks=tuple(self.streaks_L.tolist()),
            recurrence=self._recurrence,
            num_judged=0 if self.is_quiet else self._num_judged,
            onset_rows=tuple(self.onset_rows_L.tolist()),
        )

    def recall(self, memory: StandingMemory) -> None:
        """Take back what `memory` gave, over the same columns."""
        self.alert, self.episode = memory.alert, memory.episode
        self._recurrence = memory.recurrence
        self.failing_L = np.array(memory.failing, np.bool_)
        self.onset_steps_L = np.array(memory.onset_steps, np.int64)
        self.onset_times_L = np.array(memory.onset_times, np.float64)
        self.streaks_L = np.array(memory.streaks, np.int64)
        self._num_judged = memory.num_judged
        if memory.onset_rows:
            self.onset_rows_L = np.array(memory.onset_rows, np.int64)

    def _counted(self, now: Moment) -> Moment:
        return Moment(now.step, now.at, self._num_judged)

    def _onset(self, of_L: Bools) -> Moment | None:
        """The earliest onset among some failing columns; None where there are none."""
        if not of_L.any():
            return None
        steps_F = self.onset_steps_L[of_L]
        earliest = int(np.argmin(steps_F))
        return Moment(
            int(steps_F[earliest]),
            float(self.onset_times_L[of_L][earliest]),
            int(self.onset_rows_L[of_L][earliest]),
        )

    @property
    def _is_pending(self) -> bool:
        return self.alert is not None and self.alert.state is AlertState.PENDING

    def _is_another_beginning(self, onset: Moment | None) -> bool:
        """Whether the layers that made the alert pend have cleared, and others fail since later."""
        return (
            self.alert is not None
            and self._is_pending
            and onset is not None
            and onset.step != self.alert.onset.step
        )

    def _become(self, change: Change) -> Change:
        alert = change.alert
        if alert is not None and alert.state is AlertState.RESOLVED:
            alert = None
            self._recurrence = self._recurrence.after_end()
        self.alert = alert
        return change
