"""From verdicts to alerts: each row moves the alert of its rule, and what is news is described.

Legend: R rows of a stretch, C columns (layers, or one for the run), F failing columns.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from runwatch.alerts import Alert, Change, Moment, Reason
from runwatch.rules.block import Block
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.named_layers import culprits_named
from runwatch.rules.nonfinite_origin import Origin, spread_of
from runwatch.rules.reporting import name_layers
from runwatch.rules.standing import Standing
from runwatch.rules.transitions import Transition
from runwatch.rules.windows import Bools, Floats

_GOES_ON = (Reason.HOLDING, Reason.STILL_FIRING, Reason.RELAPSED)

Found = list[tuple[int, Transition]]
"""Transitions, each with the row of the block that brought it."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of consecutive rows."""

    first_row: int
    failing_RC: Bools
    known_RC: Bools

    def before(self, stop: int) -> "Verdicts":
        return Verdicts(self.first_row, self.failing_RC[:stop], self.known_RC[:stop])


@dataclass(frozen=True, slots=True)
class RowValues:
    """What a rule shows of the rows of a stretch."""

    values_RC: Floats
    excess_RC: Floats
    """How far each value is beyond its limit; the larger, the worse."""
    known_RC: Bools
    """A layer goes on failing through rows that did not record it: there it has no value."""

    def of_row(self, offset: int) -> tuple[Floats, Floats, Bools]:
        return self.values_RC[offset], self.excess_RC[offset], self.known_RC[offset]


@dataclass(frozen=True, slots=True)
class RowReading:
    """What a rule looks at in the rows of a stretch, and how to read it."""

    read_values: Callable[[], RowValues]
    """Asked for once, where anything fails."""
    backward: bool
    """It looks at gradients, which run from the loss to the first layer."""
    downward: bool = False
    """The lower the worse."""
    origin_of_row: Callable[[int, str | None], Origin | None] | None = None
    """What broke first in a row, given the layer to blame if that was a gradient."""
    series: Collection[str] = ()
    """The metrics that it reads, of which events may name the layers."""


def follow(standing: Standing, verdicts: Verdicts, reading: RowReading, block: Block) -> Found:
    """Move the alert row by row; healthy rows of a quiet rule change nothing and are passed."""
    num_rows = len(verdicts.failing_RC)
    first = 0
    if standing.is_quiet:
        failing_rows = np.flatnonzero(verdicts.failing_RC.any(axis=1))
        first = int(failing_rows[0]) if failing_rows.size else num_rows
    found: Found = []
    builder = _TransitionBuilder(standing, reading, block, verdicts.first_row)
    for offset in range(first, num_rows):
        failing_C, known_C = verdicts.failing_RC[offset], verdicts.known_RC[offset]
        now = builder.moment(offset)
        before = standing.alert
        for change in standing.judge(failing_C, known_C, now):
            transition = builder.build(change, before, now, offset)
            if transition is not None:
                found.append((verdicts.first_row + offset, transition))
            before = standing.alert
    return found


class _TransitionBuilder:
    """Puts what changes an alert into words, over the rows of one stretch."""

    def __init__(
        self, standing: Standing, reading: RowReading, block: Block, first_row: int
    ) -> None:
        self._standing = standing
        self._reading = reading
        self._block = block
        self._first_row = first_row
        self._values: RowValues | None = None

    def moment(self, offset: int) -> Moment:
        row, rows = self._first_row + offset, self._block.rows
        return Moment(int(rows.steps[row]), float(rows.times[row]))

    def build(
        self, change: Change, before: Alert | None, now: Moment, offset: int
    ) -> Transition | None:
        """What to tell of a change; None where it is no news."""
        standing = self._standing
        if change.reason is Reason.UNKNOWN or (change.alert is None and not change.is_news):
            return None
        if change.reason is Reason.CLEARED:
            standing.count_clearing()
        flaps = standing.is_flapping and change.reason in (Reason.CLEARED, Reason.RELAPSED)
        if change.is_news and not flaps:
            self._describe(change, now, offset)
        elif change.reason in _GOES_ON and standing.failing_L.any():
            self._watch(now, offset)
            episode = standing.episode
            if change.reason is Reason.HOLDING or episode is None or not episode.has_worsened:
                return None
            self._describe(change, now, offset)
            change = Change(change.alert, Reason.WORSENED)
        else:
            return None
        return standing.transition_of(change, before, now, self._block.rows.rank)

    def _values_of(self, offset: int) -> tuple[Floats, Floats, Bools]:
        """(C,) values and excess of one row, and which of them were recorded there."""
        if self._values is None:
            self._values = self._reading.read_values()
        return self._values.of_row(offset)

    def _describe(self, change: Change, now: Moment, offset: int) -> None:
        """Name whom the change is about. Those who failed stay named when they have recovered."""
        standing = self._standing
        if change.reason in (Reason.CLEARED, Reason.RECOVERED, Reason.CLEARED_EARLY):
            self._show_recovery(offset)
            return
        values_C, excess_C, known_C = self._values_of(offset)
        failing_C = standing.failing_L
        excess_L = np.where(failing_C & known_C, excess_C, 0.0)
        alert = standing.alert
        assert alert is not None
        culprits = name_layers(
            standing.columns,
            failing_C,
            failing_C & (standing.onset_steps_L == alert.onset.step),
            excess_L,
            backward=self._reading.backward,
        )
        if not culprits.layers:
            culprits = culprits_named(self._block.rows.named, self._reading.series, now.step)
        culprits = self._with_origin(culprits, alert.onset.step, offset)
        shown_F = np.flatnonzero(failing_C & known_C)
        worst = int(shown_F[np.argmax(excess_C[shown_F])]) if shown_F.size else None
        value = None if worst is None else float(values_C[worst])
        if standing.episode is None:
            rows = self._block.rows
            shown = math.nan if value is None else value
            standing.episode = Episode(rows.attempt, rows.segment, culprits, shown)
        else:
            standing.refresh_episode(culprits, value)
        self._watch(now, offset)

    def _with_origin(self, culprits: Culprits, onset: int, offset: int) -> Culprits:
        """Culprits with what broke first, as it was at the onset, and what followed by now."""
        origin_of_row, standing = self._reading.origin_of_row, self._standing
        if origin_of_row is None:
            return culprits
        known = None if standing.episode is None else standing.episode.culprits
        if known is None or not known.origin:
            origin = origin_of_row(self._first_row + offset, culprits.first)
            if origin is None:
                return culprits
            culprits = replace(culprits, first=origin.layer, origin=origin.words, why=origin.why)
            known = culprits
        spread = spread_of(
            standing.columns, standing.failing_L, standing.onset_steps_L, onset, known.first
        )
        return replace(culprits, spread=spread)

    def _watch(self, now: Moment, offset: int) -> None:
        """Remember the worst that was seen."""
        standing = self._standing
        assert standing.episode is not None
        values_C, excess_C, known_C = self._values_of(offset)
        shown_F = np.flatnonzero(standing.failing_L & known_C)
        if shown_F.size:
            standing.watch_peak(
                now.step, shown_F, values_C[shown_F], downward=self._reading.downward
            )
        standing.watch_width(np.where(known_C, excess_C, 0.0))

    def _show_recovery(self, offset: int) -> None:
        standing = self._standing
        assert standing.episode is not None
        worst = standing.episode.culprits.worst
        column = standing.columns.index(worst) if worst in standing.columns else 0
        values_C, _, known_C = self._values_of(offset)
        value = float(values_C[column]) if known_C[column] else None
        standing.refresh_episode(standing.episode.culprits, value)
