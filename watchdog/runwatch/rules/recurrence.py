"""How long an alert is kept whose condition comes and goes.

A gradient that is NaN at every thirtieth step would be told anew each time, twenty sound steps
after the last. So each time that it comes back, in this alert or after one, it is kept for twice as
long. That hides no other fault: layers of which none had failed before are another alert, as soon
as the first would have been over without the doubling.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from runwatch.alerts import Alert, AlertState, Moment, Span
from runwatch.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Of one rule in one attempt."""

    num_ended: int = 0
    """Alerts that were over."""
    layers: tuple[str, ...] = ()
    """All that failed in the present alert."""

    def with_failing(self, layers: Iterable[str]) -> "Recurrence":
        return replace(self, layers=tuple(dict.fromkeys((*self.layers, *layers))))

    def after_end(self) -> "Recurrence":
        return Recurrence(self.num_ended + 1)


def keep_of(rule: Rule, recurrence: Recurrence, num_clearings: int) -> Span:
    """How long an alert is kept that has been clear so often."""
    num_returns = recurrence.num_ended + max(num_clearings - 1, 0)
    return rule.keep_firing_for.times(2 ** min(rule.keep_doublings, num_returns))


def is_another(
    rule: Rule, recurrence: Recurrence, alert: Alert | None, layers: Collection[str], now: Moment
) -> bool:
    """Whether none of the layers that fail now belongs to the alert that is recovering."""
    return (
        alert is not None
        and alert.state is AlertState.RECOVERING
        and rule.keep_firing_for.has_passed(alert.since, now)
        and bool(layers)
        and set(layers).isdisjoint(recurrence.layers)
    )
