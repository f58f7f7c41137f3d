"""Judges whether a run is far worse than the others of its group at the same steps.

Runs of a group repeat one another: seeds, replicas of an experiment, a sweep. This is not a rule
over one run's rows, so it is judged here, at intervals, from what is stored of all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.alerts import Alert, Change, Moment, Span, advance
from runwatch.rules import Rule, Transition
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.reporting import transition
from runwatch.rules.templates import Template
from runwatch.vocabulary import Severity
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.rules.own_names import GROUP_OUTLIER

WINDOW_STEPS: Final = 128
"""Number of steps over which losses are compared, by their medians."""
FEWEST_OTHERS: Final = 4
_FEWEST_VALUES: Final = 16
_MADS: Final = 8.0
"""Margin in median absolute deviations of the others' medians: about 5 standard deviations if there
were many of them."""
_SHARE: Final = 0.2
_OWN_MADS: Final = 2.0
"""Margin in median absolute deviations of the run's own values: a widely scattered loss has to be
further off."""

RULE: Final = Rule(
    name=GROUP_OUTLIER,
    for_=Span(steps=2 * WINDOW_STEPS),
    keep_firing_for=Span(steps=2 * WINDOW_STEPS),
    severity=Severity.INFO,
    summary=Template("loss about {value:.4g} at step {step}, far above the group's other runs"),
    description=Template(
        "At the same steps at least four other runs of its group lie close together. This one lies "
        "further above them than their spread and its own noise explain."
    ),
    runbook="docs/runbooks/group-outlier.md",
    document={"builtin": GROUP_OUTLIER, "version": 1},
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run among the others of its group."""

    own: float
    """Median loss over the window."""
    limit: float
    """Above this the run is far worse than the others."""

    @property
    def is_far_worse(self) -> bool:
        return not self.own <= self.limit


def compare(own_N: NDArray[np.float64], others: Sequence[NDArray[np.float64]]) -> Comparison | None:
    """Compare the run's losses in a window of steps with those of the others. None if too few of
    them are finite; values that are not are what NonFinite reports."""
    own_N = own_N[np.isfinite(own_N)]
    finite = [losses_N[np.isfinite(losses_N)] for losses_N in others]
    levels = [float(np.median(one)) for one in finite if len(one) >= _FEWEST_VALUES]
    if len(own_N) < _FEWEST_VALUES or len(levels) < FEWEST_OTHERS:
        return None
    own, centre = float(np.median(own_N)), float(np.median(levels))
    margin = max(
        _MADS * float(np.median(np.abs(np.array(levels) - centre))),
        _SHARE * abs(centre),
        _OWN_MADS * float(np.median(np.abs(own_N - own))),
    )
    return Comparison(own, centre + margin)


def judge(comparison: Comparison, known: AlertRecord | None, now: Moment) -> Change:
    """How the run's alert changes after a look; `known` is the open alert, as it is stored."""
    return advance(
        None if known is None else _alert_of(known),
        comparison.is_far_worse,
        now,
        hold=RULE.for_,
        keep=RULE.keep_firing_for,
    )


def transition_of(
    change: Change, comparison: Comparison, known: AlertRecord | None, now: Moment, attempt: int
) -> Transition:
    """The transition to report for a change."""
    begun_in = attempt if known is None else known.attempt
    episode = Episode(begun_in, 0, Culprits(), comparison.own)
    before = None if known is None else _alert_of(known)
    return transition(RULE, change, before, episode, now, rank=0)


def _alert_of(record: AlertRecord) -> Alert:
    onset = Moment(record.onset_step, record.onset_at)
    return Alert(record.state, onset, Moment(record.last_step, record.onset_at))
