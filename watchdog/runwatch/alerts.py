"""The life of an alert: how it comes, holds, fires, recovers and ends.

    inactive -> pending -> firing <-> recovering -> resolved
                   |
                   +-> inactive (it cleared before it had held for long enough)

A function of values to a value: the state before, a verdict and a moment give the state after and
the reason. Time and step are arguments, so the same data give the same alerts, live or replayed.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class AlertState(StrEnum):
    INACTIVE = "inactive"
    PENDING = "pending"
    """The condition holds, but not yet for as long as the rule asks; nobody is told."""
    FIRING = "firing"
    RECOVERING = "recovering"
    """The condition is over, but not yet for as long as the rule asks; still an open alert."""
    RESOLVED = "resolved"

    @property
    def is_open(self) -> bool:
        """Whether people have been told of it and not yet that it is over."""
        return self in (AlertState.FIRING, AlertState.RECOVERING)


class Reason(StrEnum):
    """Why an alert changed, or why it did not."""

    NOTHING = "nothing"
    """No alert, and no cause for one."""
    UNKNOWN = "unknown"
    """What the rule reads was not recorded, or has too little history."""
    BEGAN = "began"
    HOLDING = "holding"
    """The condition goes on; `for` has not passed yet."""
    HELD = "held"
    """The condition held for as long as the rule asks: it fires."""
    CLEARED_EARLY = "cleared_early"
    STILL_FIRING = "still_firing"
    WORSENED = "worsened"
    """It goes on, and is so much worse that what was told of it is no longer true."""
    CLEARED = "cleared"
    KEPT = "kept"
    """The condition is over; `keep_firing_for` has not passed yet."""
    RELAPSED = "relapsed"
    """The condition came back before the alert was resolved."""
    RECOVERED = "recovered"
    SETTLED_WORSE = "settled_worse"
    """The condition is over, but what it looks at has not come back to what it was before."""
    INHIBITED = "inhibited"
    """Another rule's alert explains this one, which goes on beneath it."""
    RELEASED = "released"
    """What explained the alert is over, and it still fires."""
    UNDONE = "undone"
    """A rollback took back the steps in which the condition held."""
    ENDED = "ended"
    """The attempt is over; a new one starts with a clean sheet."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in a run."""

    step: int
    at: float
    """Unix seconds."""
    row: int = 0
    """How many rows had been judged, counted by whoever advances the alert."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run, in steps, in rows or in seconds."""

    steps: int = 0
    seconds: float = 0.0
    rows: int = 0
    """Judged ones: a log may have a row at every hundredth step."""

    def times(self, factor: int) -> "Span":
        return Span(self.steps * factor, self.seconds * factor, self.rows * factor)

    def has_passed(self, since: Moment, now: Moment) -> bool:
        """A span of no seconds asks no clock: a trainer's may be set back."""
        if self.seconds and now.at - since.at < self.seconds:
            return False
        return now.step - since.step >= self.steps and now.row - since.row >= self.rows


AT_ONCE: Final = Span()


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that is not inactive."""

    state: AlertState
    onset: Moment
    """When the condition began."""
    since: Moment
    """When the present state was entered."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a verdict did to an alert."""

    alert: Alert | None
    """None: inactive. An alert in the state `resolved` is to be told once and then dropped."""
    reason: Reason

    @property
    def is_news(self) -> bool:
        """Whether the state is another one than before."""
        return self.reason in _NEWS


_NEWS: Final = (
    Reason.BEGAN,
    Reason.HELD,
    Reason.CLEARED_EARLY,
    Reason.CLEARED,
    Reason.RELAPSED,
    Reason.RECOVERED,
    Reason.UNDONE,
    Reason.ENDED,
)


def advance(
    alert: Alert | None,
    failing: bool | None,
    now: Moment,
    *,
    hold: Span = AT_ONCE,
    keep: Span = AT_ONCE,
    onset: Moment | None = None,
    held_since: Moment | None = None,
) -> Change:
    """The alert after one verdict: `failing` is None where the verdict is unknown.

    `onset` is when the condition began, where that is earlier than now; an alert over layers
    passes the earliest of those that fail. `held_since`, from which `hold` is counted, is the
    earliest of those that this verdict is about; the onset where it is not given.
    """
    if failing is None:
        return Change(alert, Reason.UNKNOWN)
    if failing:
        return _advance_failing(alert, now, hold, onset or now, held_since)
    return _advance_healthy(alert, now, keep)


def rewind(alert: Alert | None, first_step: int, now: Moment) -> Change:
    """The alert after a rollback that trains again from `first_step` on.

    What has fired goes on and recovers as usual; what was pending never happened.
    """
    match alert:
        case Alert(state=AlertState.PENDING) if alert.onset.step >= first_step:
            return Change(None, Reason.UNDONE)
        case Alert(state=AlertState.RECOVERING) if alert.since.step > first_step:
            return Change(replace(alert, since=Moment(first_step, now.at, now.row)), Reason.KEPT)
        case _:
            return Change(alert, Reason.NOTHING)


def end(alert: Alert | None, now: Moment) -> Change:
    """The alert after its attempt ended."""
    if alert is None:
        return Change(None, Reason.NOTHING)
    if alert.state is AlertState.PENDING:
        return Change(None, Reason.ENDED)
    return Change(Alert(AlertState.RESOLVED, alert.onset, now), Reason.ENDED)


def _advance_failing(
    alert: Alert | None, now: Moment, hold: Span, onset: Moment, held_since: Moment | None
) -> Change:
    if alert is None or alert.state is AlertState.RESOLVED:
        if hold.has_passed(held_since or onset, now):
            return Change(Alert(AlertState.FIRING, onset, now), Reason.HELD)
        return Change(Alert(AlertState.PENDING, onset, now), Reason.BEGAN)
    if alert.state is AlertState.PENDING:
        if hold.has_passed(held_since or alert.onset, now):
            return Change(Alert(AlertState.FIRING, alert.onset, now), Reason.HELD)
        return Change(alert, Reason.HOLDING)
    if alert.state is AlertState.RECOVERING:
        return Change(Alert(AlertState.FIRING, alert.onset, now), Reason.RELAPSED)
    return Change(alert, Reason.STILL_FIRING)


def _advance_healthy(alert: Alert | None, now: Moment, keep: Span) -> Change:
    if alert is None or alert.state is AlertState.RESOLVED:
        return Change(None, Reason.NOTHING)
    if alert.state is AlertState.PENDING:
        return Change(None, Reason.CLEARED_EARLY)
    since = now if alert.state is AlertState.FIRING else alert.since
    if keep.has_passed(since, now):
        return Change(Alert(AlertState.RESOLVED, alert.onset, now), Reason.RECOVERED)
    if alert.state is AlertState.FIRING:
        return Change(Alert(AlertState.RECOVERING, alert.onset, now), Reason.CLEARED)
    return Change(alert, Reason.KEPT)
