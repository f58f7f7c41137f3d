"""No step for a time: a verdict about silence, which no row can bring."""

import math
from dataclasses import dataclass

from runwatch.alerts import Alert, Change, Moment, advance
from runwatch.rules.rule import Absence, Rule
from runwatch.vocabulary import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What is known of a rank's progress at the time of asking."""

    last_step: int | None
    """None before the first step."""
    silent_s: float
    """Seconds since the last step ended (or since the attempt began), by one monotonic clock."""
    phase: Phase
    median_step_s: float | None = None
    """Of the recent steps; None where there are too few."""
    longest_pause_s: float | None = None
    """Between two steps that nothing explains; None while the run's pace is not known."""
    longest_phase_s: float | None = None
    """The longest that the phase has lasted, of the times that it ended; None: it never did."""


def limit_s(absence: Absence, liveness: Liveness) -> float | None:
    """How long a silence is normal, now; None: for ever."""
    factor = absence.phase_factors.get(liveness.phase, 1.0)
    if factor <= 0.0 or (absence.once_known and liveness.longest_pause_s is None):
        return None
    of_phase_s = absence.times_longest * (liveness.longest_phase_s or 0.0)
    if absence.by_phase and liveness.longest_phase_s is not None:
        return max(absence.timeout_s, of_phase_s)
    of_median_s = absence.times_median * (liveness.median_step_s or 0.0)
    of_longest_s = absence.times_longest * (liveness.longest_pause_s or 0.0)
    return max(max(absence.timeout_s, of_median_s, of_longest_s) * factor, of_phase_s)


def judge_absence(rule: Rule, liveness: Liveness, alert: Alert | None, now: float) -> Change:
    """The alert of an absence rule after a look at the clock; `now` in Unix seconds.

    Pure: the caller keeps the alert (None at first, and again once it was resolved). The onset is
    the moment at which the silence outlasted its limit, so that an episode's identity does not
    depend on when somebody looked.
    """
    assert rule.absence is not None
    limit = limit_s(rule.absence, liveness)
    step = liveness.last_step or 0
    failing = limit is not None and not liveness.silent_s <= limit
    onset = Moment(step, now)
    if limit is not None and math.isfinite(liveness.silent_s):
        onset = Moment(step, now - liveness.silent_s + limit)
    return advance(
        alert,
        failing,
        Moment(step, now),
        hold=rule.for_,
        keep=rule.keep_firing_for,
        onset=onset,
    )
