"""The answers of Prometheus' `/api/v1/alerts` and `/api/v1/rules` (its web/api/v1/api.go).

Prometheus has three states, so a recovering alert counts as firing.
"""

import math
from datetime import datetime
from typing import Final

import msgspec
import numpy as np

from runwatch.alerts import AlertState
from runwatch.nonfinite import JsonNumber
from runwatch.rules import Rule
from runwatch_server.clock import rfc3339
from runwatch_server.notify.cases import Case, labels_of
from runwatch_server.notify.posting import annotations_of

FIRING: Final = "firing"
PENDING: Final = "pending"
INACTIVE: Final = "inactive"


class PromAlert(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str]
    annotations: dict[str, str]
    state: str
    """`pending` or `firing`."""
    active_at: datetime
    value: str
    """The value in Go's notation: `1e+00`, `NaN`, `+Inf`."""


class PromRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    state: str
    """The most urgent state of its alerts, else `inactive`."""
    name: str
    query: str
    duration: float
    """Seconds; 0 if the rule counts steps, which Prometheus does not have."""
    keep_firing_for: float
    labels: dict[str, str]
    annotations: dict[str, str]
    alerts: list[PromAlert]
    health: str
    evaluation_time: float
    last_evaluation: datetime
    type: str = "alerting"


class PromGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    file: str
    """`builtin`, `everywhere`, or `project:` with the project's name."""
    rules: list[PromRule]
    interval: float
    limit: int
    evaluation_time: float
    last_evaluation: datetime


class AlertData(msgspec.Struct, frozen=True):
    alerts: list[PromAlert]


class RuleData(msgspec.Struct, frozen=True):
    groups: list[PromGroup]


class AlertAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    status: str
    data: AlertData
    warnings: list[str] = []


class RuleAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    status: str
    data: RuleData
    warnings: list[str] = []


def alert_of(case: Case, *, watchdog: str, url: str, now: float) -> PromAlert:
    """An alert with the labels and annotations that Alertmanager is sent."""
    alert = case.alert
    return PromAlert(
        labels=labels_of(case, watchdog),
        annotations=annotations_of(case, url),
        state=PENDING if alert.state is AlertState.PENDING else FIRING,
        active_at=rfc3339(min(alert.onset_at, now)),  # the trainer's clock may be ahead
        value=go_float(alert.facts.value),
    )


def rule_of(rule: Rule, alerts: list[PromAlert], *, is_judged: bool, now: float) -> PromRule:
    states = {alert.state for alert in alerts}
    return PromRule(
        state=next((state for state in (FIRING, PENDING) if state in states), INACTIVE),
        name=rule.name,
        query=rule.text,
        duration=rule.for_.seconds,
        keep_firing_for=rule.keep_firing_for.seconds,
        labels=dict(rule.labels) | {"severity": rule.severity.value},
        annotations=rule.annotations,
        alerts=alerts,
        health="ok" if is_judged else "err",
        evaluation_time=0.0,  # judged as frames come, not all rules at once
        last_evaluation=rfc3339(now),
    )


def go_float(value: JsonNumber) -> str:
    """Like Go's `strconv.FormatFloat(value, 'e', -1, 64)`; NaN if nothing was recorded."""
    number = float("nan") if value is None else float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return np.format_float_scientific(number, trim="-", exp_digits=2)
