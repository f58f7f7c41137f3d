"""Decides what is posted to Alertmanager: which alerts, when again, and in what form.

A function of the current alerts and of what was sent, with both clocks passed in. The contract is
that of Prometheus: a firing alert is sent again every minute with an end four minutes ahead, so
that it ends by itself if this service falls silent; a resolved alert is repeated for a quarter of
an hour, so that its end survives a restart of the receiver (prometheus, rules/alerting.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from runwatch.nonfinite import JsonNumber
from runwatch_server.alerts.actions.rungs import ladder_in_words
from runwatch_server.clock import rfc3339
from runwatch_server.notify.cases import Case, labels_of
from runwatch_server.notify.texts import (
    alert_url,
    done_about,
    layers_about,
    link_to,
    runbook_of,
    worst_about,
)

RESEND_S: Final = 60.0
VALID_S: Final = 240.0
RESOLVED_FOR_S: Final = 900.0

HEARTBEAT: Final = "Watchdog"
"""Name of an alert that always fires: a dead man's switch behind Alertmanager notices if it
stops."""


class PostableAlert(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An alert in the form that `POST /api/v2/alerts` takes."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: datetime
    ends_at: datetime
    generator_url: str = msgspec.field(default="", name="generatorURL")


@dataclass(frozen=True, slots=True)
class Posting:
    """An alert to be posted."""

    key: str
    is_resolved: bool
    alert: PostableAlert


@dataclass(frozen=True, slots=True)
class Sent:
    """When a replica last accepted an alert, and in which state."""

    is_resolved: bool
    at: float
    """By the monotonic clock: setting the wall clock must neither hasten nor stop repeats."""


def is_due(is_resolved: bool, sent: Sent | None, *, now: float) -> bool:
    """Whether an alert is to be sent: if it is new, if its state is new, and every minute."""
    return sent is None or sent.is_resolved != is_resolved or now - sent.at >= RESEND_S


def newest_of_each(cases: Sequence[Case], watchdog: str) -> list[Case]:
    """One case for each set of labels, which is all by which Alertmanager distinguishes alerts. A
    case that goes on takes precedence over those that are over; otherwise a resolved one would end
    its successor."""
    chosen: dict[tuple[tuple[str, str], ...], Case] = {}
    for case in sorted(cases, key=lambda case: (not case.is_reported_over, case.fired_at)):
        chosen[tuple(sorted(labels_of(case, watchdog).items()))] = case
    return list(chosen.values())


def due_cases(cases: Sequence[Case], sent: Mapping[str, Sent], *, now: float) -> list[Case]:
    """The cases to send to one replica now."""
    return [
        case for case in cases if is_due(case.is_reported_over, sent.get(case.alert.id), now=now)
    ]


def posting_of(case: Case, *, watchdog: str, url: str, wall: float) -> Posting:
    return Posting(case.alert.id, case.is_reported_over, _postable(case, watchdog, url, wall))


def heartbeat(*, watchdog: str, started_at: float, wall: float) -> Posting:
    return Posting(HEARTBEAT, False, _heartbeat(watchdog, started_at, wall))


def _postable(case: Case, watchdog: str, url: str, wall: float) -> PostableAlert:
    # The onset is by the trainer's clock, which may be ahead, and a start after the end is refused.
    starts_at = min(case.alert.onset_at, case.fired_at, wall)
    is_over = case.is_reported_over and case.resolved_at is not None
    ends_at = min(case.resolved_at or wall, wall) if is_over else wall + VALID_S
    return PostableAlert(
        labels=labels_of(case, watchdog),
        annotations=annotations_of(case, url),
        starts_at=rfc3339(starts_at),
        ends_at=rfc3339(max(ends_at, starts_at)),
        generator_url=alert_url(case, url),
    )


def annotations_of(case: Case, url: str) -> dict[str, str]:
    """The alert's annotations, which, unlike its labels, may change while it lasts."""
    alert = case.alert
    told = {
        "summary": alert.facts.summary,
        "description": alert.facts.description,
        "card": case.card,
        "value": _number(alert.facts.value),
        "worst": worst_about(case),
        "times": str(case.times) if case.times > 1 else "",
        "resolution": alert.resolution or "" if case.settles_step is None else "",
        "outcome": alert.facts.outcome if case.settles_step is None else "",
        "step": str(alert.last_step),
        "onset_step": str(alert.onset_step),
        "layers": layers_about(case),
        "first_layer": alert.facts.first_layer or "",
        "done": done_about(case.commands),
        "ladder": ladder_in_words(alert, case.commands),
        "runbook_url": runbook_of(case, url),
        "dashboard_url": link_to(case, url),
        "episode": alert.episode,
    }
    return {name: text for name, text in told.items() if text}


def _number(value: JsonNumber) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _heartbeat(watchdog: str, started_at: float, wall: float) -> PostableAlert:
    return PostableAlert(
        labels={"alertname": HEARTBEAT, "severity": "none", "watchdog": watchdog},
        annotations={
            "summary": "Runwatch is alive; this always fires.",
            "description": "Connect it to a dead man's switch, which tells when it stops coming.",
        },
        starts_at=rfc3339(min(started_at, wall)),
        ends_at=rfc3339(wall + VALID_S),
    )
