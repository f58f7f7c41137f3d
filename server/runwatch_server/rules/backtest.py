"""Backtests: the evaluator that judges live runs, over frames or tables of past ones.

The reply has one form for every source (docs/design.md, section 4.6).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from runwatch.alerts import AlertState, Moment, Reason
from runwatch.nonfinite import JsonNumber, to_json
from runwatch.rules import NON_FINITE, Evaluator, Rows, Rule, Transition
from runwatch.vocabulary import Severity
from runwatch_server.clock import rfc3339

_DAY_S: Final = 86400.0


class BacktestAlert(msgspec.Struct, frozen=True):
    alert: str
    severity: str
    labels: dict[str, str]
    pending_step: int
    firing_step: int
    resolved_step: int | None
    value: JsonNumber
    attempt: int = 1
    segment: int = 0
    first_layer: str | None = None
    summary: str = ""
    inhibited_by: str | None = None
    """The rule whose alert explains this one for as long as it fires, so that nobody is told."""
    shadow: bool = False
    firing_at: datetime | None = None
    """By the run's clock; null if the log has no times."""

    @property
    def is_notifiable(self) -> bool:
        return self.inhibited_by is None and not self.shadow


class BacktestRun(msgspec.Struct, frozen=True):
    file: str
    """The run's file or id."""
    rows: int
    alerts: list[BacktestAlert]
    seconds: float | None = None
    """Time from the first row to the last; null if the log has no times."""
    lead_steps: int | None = None
    """Steps from the first alert that is told to the first non-finite number, or else to the run's
    last row: how much earlier somebody would have known. Null without such an alert."""
    lead_s: float | None = None


class BacktestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What these rules would have sent to people."""

    runs: int
    runs_with_alerts: int
    alerts: int
    """Alerts that people are told of: neither inhibited nor of a rule on trial."""
    pages: int
    """The critical ones among these alerts."""
    inhibited: int
    shadow: int
    """Alerts of rules on trial."""
    days: float | None
    """Days that the runs took in total; null if none has times."""
    pages_a_day: float | None
    alerts_a_day: float | None


class BacktestReply(msgspec.Struct, frozen=True):
    runs: list[BacktestRun]
    summary: BacktestSummary | None = None


@dataclass(slots=True)
class Backtest:
    """Judges one run from its start."""

    evaluator: Evaluator
    has_times: bool = True
    num_rows: int = 0
    _first_at: float | None = None
    _last: Moment | None = None
    _broken: Moment | None = None
    """The step of the first non-finite number."""
    _by_episode: dict[str, BacktestAlert] = field(default_factory=dict[str, BacktestAlert])
    _fired_at: dict[str, float] = field(default_factory=dict[str, float])
    """By episode, in Unix seconds."""

    @classmethod
    def of_rules(
        cls, rules: Iterable[Rule], known: Mapping[str, float] | None = None
    ) -> "Backtest":
        """A backtest of these rules; absence rules are left out, as stored rows show no silence."""
        return cls(Evaluator([rule for rule in rules if rule.absence is None], known))

    def observe(self, rows: Rows) -> None:
        self.num_rows += rows.num_rows
        if rows.num_rows:
            self._first_at = float(rows.times[0]) if self._first_at is None else self._first_at
            self._last = Moment(int(rows.steps[-1]), float(rows.times[-1]))
        for transition in self.evaluator.observe(rows):
            self._note(transition)

    def result(self, file: str) -> BacktestRun:
        alerts = [self._with_time(episode, one) for episode, one in self._by_episode.items()]
        seconds = None
        if self.has_times and self._first_at is not None and self._last is not None:
            seconds = max(self._last.at - self._first_at, 0.0)
        lead = self._lead()
        return BacktestRun(
            file,
            self.num_rows,
            alerts,
            seconds=seconds,
            lead_steps=None if lead is None else lead.step,
            lead_s=None if lead is None or not self.has_times else lead.at,
        )

    def _with_time(self, episode: str, alert: BacktestAlert) -> BacktestAlert:
        if not self.has_times:
            return alert
        return msgspec.structs.replace(alert, firing_at=rfc3339(self._fired_at[episode]))

    def _lead(self) -> Moment | None:
        """Steps from the first alert that is told to the end that it announces."""
        alerts = self._by_episode
        told = [episode for episode, alert in alerts.items() if alert.is_notifiable]
        end = self._broken or self._last
        if not told or end is None:
            return None
        first = min(told, key=self._fired_at.__getitem__)
        steps = end.step - alerts[first].firing_step
        return Moment(max(steps, 0), max(end.at - self._fired_at[first], 0.0))

    def _note(self, transition: Transition) -> None:
        known = self._by_episode.get(transition.episode)
        if transition.rule == NON_FINITE.name and self._broken is None:
            self._broken = Moment(transition.onset_step, transition.onset_at)
        if transition.state is AlertState.FIRING and known is None:
            self._by_episode[transition.episode] = _alert(transition)
            self._fired_at[transition.episode] = transition.at
        elif transition.reason is Reason.RELEASED and known is not None and known.inhibited_by:
            self._by_episode[transition.episode] = msgspec.structs.replace(
                known, inhibited_by=None, firing_step=transition.step
            )
            self._fired_at[transition.episode] = transition.at
        elif transition.state is AlertState.RESOLVED and known is not None:
            resolved = msgspec.structs.replace(known, resolved_step=transition.step)
            self._by_episode[transition.episode] = resolved


def summary_of(runs: Sequence[BacktestRun]) -> BacktestSummary:
    alerts = [alert for run in runs for alert in run.alerts]
    told = [alert for alert in alerts if alert.is_notifiable]
    pages = [alert for alert in told if alert.severity == Severity.CRITICAL]
    timed = [run.seconds for run in runs if run.seconds is not None]
    days = sum(timed) / _DAY_S if timed else None
    return BacktestSummary(
        runs=len(runs),
        runs_with_alerts=sum(any(alert.is_notifiable for alert in run.alerts) for run in runs),
        alerts=len(told),
        pages=len(pages),
        inhibited=sum(alert.inhibited_by is not None for alert in alerts),
        shadow=sum(alert.shadow for alert in alerts),
        days=days,
        pages_a_day=len(pages) / days if days else None,
        alerts_a_day=len(told) / days if days else None,
    )


def within(rows: Rows, first_step: int | None, last_step: int | None) -> Iterator[Rows]:
    """The part of consecutive rows between two steps, both included."""
    start = 0 if first_step is None else int(rows.steps.searchsorted(first_step))
    stop = rows.num_rows if last_step is None else int(rows.steps.searchsorted(last_step, "right"))
    if start < stop:
        yield rows.between(start, stop)


def _alert(transition: Transition) -> BacktestAlert:
    return BacktestAlert(
        alert=transition.rule,
        severity=transition.severity,
        labels=dict(transition.labels),
        pending_step=transition.onset_step,
        firing_step=transition.step,
        resolved_step=None,
        value=to_json(transition.value),
        attempt=transition.attempt,
        segment=transition.segment,
        first_layer=transition.first_layer,
        summary=transition.summary,
        inhibited_by=transition.inhibited_by,
        shadow=transition.shadow,
    )
