"""Whether what a rule looks at is back within what it was before the onset of its alert.

A condition ends for other reasons than recovery: its window has slid past the fault, or has learnt
the new level. So the end of an alert is measured against the past from before it, not against the
rule.

Legend: N rows of a series.
"""

from typing import Final

import numpy as np

from runwatch.number_texts import number
from runwatch.rules.evidence import Recorded, began_at, departure
from runwatch.rules.expressions import JudgedLevel, judged_level, series_read, subject_of
from runwatch.rules.nonfinite_rule import NON_FINITE, is_loss
from runwatch.rules.rule import Rule
from runwatch.rules.statistics import MAD_TO_STD
from runwatch.rules.windows import Floats

ROWS_BEFORE: Final = 64
ROWS_AFTER: Final = 16
_FEWEST_BEFORE: Final = 4
_DEVIATIONS: Final = 3.0
_LEAST_MOVE: Final = 0.1
"""Of the level before: what is farther from it by less is back, however quiet that was."""
_HIGH: Final = 0.9
"""The quantile of the past that the median of several rows does not pass by chance."""
_ENOUGH_ROWS: Final = 4
_NUMERALS: Final = ("three", "four", "five", "six", "seven", "eight", "nine", "ten")


def level_judged(rule: Rule) -> JudgedLevel | None:
    """The series that must be back for an alert of the rule to count as recovered; None if its rule
    judges no level. After a NaN it is the loss. A loss is not worse for being low, unless it fell
    against its own past."""
    if rule.name == NON_FINITE.name:
        return JudgedLevel("loss", is_low_worse=False)
    if rule.when is None:
        return None
    level = judged_level(rule.when)
    if level is None or not (level.is_low_worse and is_loss(level.series)):
        return level
    _, comparison = subject_of(rule.when)
    is_against_past = comparison is not None and level.series in series_read(comparison.right)
    return level if is_against_past else None


def outcome_of(level: JudgedLevel, past: Recorded, onset: int, last_N: Floats) -> str:
    """In words, where a series settled that is worse than before the onset; empty if it is back, or
    if that is not known. `past` reaches up to the onset, `last_N` are its newest values."""
    finite_N = last_N[np.isfinite(last_N)][-ROWS_AFTER:]
    sign = -1.0 if level.is_low_worse else 1.0
    # In rows, not in steps: a log may have one at every hundredth, and a rule judges rows.
    turned = Recorded(np.arange(past.size), sign * past.values_N)
    onset_row = past.until(onset).size
    gone = departure(turned, onset_row)
    began = began_at(turned, onset_row) if gone is None else gone.step
    before_N = turned.until(began).values_N
    before_N = before_N[np.isfinite(before_N)][-ROWS_BEFORE:]
    if not finite_N.size:
        return ""
    now = float(np.median(sign * finite_N))
    if before_N.size < _FEWEST_BEFORE:
        return _since_start(level, sign, past.since(onset).values_N, now)
    before = float(np.median(before_N))
    if now <= _highest(before_N, before, is_one_row=finite_N.size < _ENOUGH_ROWS):
        return ""
    return f"{level.series} settled at {number(sign * now, 3)}, {_compared(sign, now, before)}"


def _highest(before_N: Floats, before: float, *, is_one_row: bool) -> float:
    """Up to where a level is within what it was before."""
    deviation = MAD_TO_STD * float(np.median(np.abs(before_N - before)))
    reached = float(np.max(before_N) if is_one_row else np.quantile(before_N, _HIGH))
    return max(reached, before + max(_DEVIATIONS * deviation, _LEAST_MOVE * abs(before)))


def _since_start(level: JudgedLevel, sign: float, at_onset_N: Floats, now: float) -> str:
    """Where too little came before the onset: whether it is still as bad as it was there."""
    first_N = sign * at_onset_N[np.isfinite(at_onset_N)][:1]
    if not first_N.size or now < first_N[0] - _LEAST_MOVE * abs(first_N[0]):
        return ""
    return f"{level.series} is still at {number(sign * now, 3)}, as at the onset"


def _compared(sign: float, now: float, before: float) -> str:
    times = now / before if sign > 0.0 and before > 0.0 else 0.0
    if not 1.75 <= times < 1e6:
        return f"against {number(sign * before, 3)} before"
    whole = round(times)
    if whole == 2:
        return "twice its level before"
    words = _NUMERALS[whole - 3] if whole <= 10 else number(float(whole))
    return f"{words} times its level before"
