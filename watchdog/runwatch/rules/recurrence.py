"""How long an alert is kept whose condition comes and goes.

A gradient that is NaN at every thirtieth step would be told anew each time, were it over twenty
sound steps after the last. So it is kept for four times as long from the start, and for twice as
long each time that it comes back, in this alert or after one. What a rollback took back has a cause
to be over, and is kept for the plain time. None of it hides another fault: layers of which none had
failed before are another alert, as soon as the first would have been over after the plain time, and
up to then alone it explains other rules' alerts (`inhibition.py`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from runwatch.alerts import Alert, AlertState, Moment, Span
from runwatch.rules.rule import Rule

_FIRST_DOUBLINGS: Final = 2
"""What comes and goes with gaps of up to 80 steps is then told once; without them, up to thrice."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Of one rule in one attempt."""

    num_ended: int = 0
    """Alerts that were over."""
    layers: tuple[str, ...] = ()
    """All that failed in the present alert."""
    is_undone: bool = False
    """Whether a rollback took back the steps in which it failed last."""

    def with_failing(self, layers: Iterable[str]) -> "Recurrence":
        names = tuple(dict.fromkeys((*self.layers, *layers)))
        return replace(self, layers=names, is_undone=False)

    def after_rollback(self) -> "Recurrence":
        return replace(self, is_undone=True)

    def after_end(self) -> "Recurrence":
        return Recurrence(self.num_ended + 1)


def keep_of(rule: Rule, recurrence: Recurrence, num_clearings: int) -> Span:
    """How long an alert is kept that has been clear so often."""
    num_returns = recurrence.num_ended + max(num_clearings - 1, 0)
    num_doublings = num_returns if recurrence.is_undone else _FIRST_DOUBLINGS + num_returns
    return rule.keep_firing_for.times(2 ** min(rule.keep_doublings, num_doublings))


def is_another(
    rule: Rule, recurrence: Recurrence, alert: Alert | None, layers: Collection[str], now: Moment
) -> bool:
    """Whether these layers, which fail now, are none of a recovering alert's."""
    return (
        alert is not None
        and alert.state is AlertState.RECOVERING
        and rule.keep_firing_for.has_passed(alert.since, now)
        and bool(layers)
        and set(layers).isdisjoint(recurrence.layers)
    )
