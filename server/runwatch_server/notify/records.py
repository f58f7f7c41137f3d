"""The stored values of one alert's news on its way to one receiver."""

from dataclasses import dataclass
from enum import StrEnum

from runwatch.vocabulary import AlertId, RunId
from runwatch_server.alerts.records import AlertRecord


class Kind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Given up after a day without success."""
    WITHHELD = "withheld"
    """Nobody needs to be notified any more: a silence held it back until then, or the alert came
    back before its end was sent."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    alert: AlertRecord
    receiver: str
    kind: Kind
    dedup_key: str
    created_at: float
    due_at: float
    delivered_at: float | None = None
    """When the receiver was notified of the incident that this is part of; None if it is to be
    sent."""


@dataclass(frozen=True, slots=True)
class TimeBefore:
    """An earlier alert that people were notified of, seen from the next occurrence of the same
    problem."""

    alert_id: AlertId
    times: int
    """How often the problem had occurred by then."""
    resolved_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One alert's news on its way to one receiver."""

    number: int
    run_id: RunId
    alert_id: AlertId
    project: str
    receiver: str
    kind: Kind
    dedup_key: str
    state: DeliveryState
    created_at: float
    due_at: float
    attempts: int
    first_failed_at: float | None
    delivered_at: float | None
    error: str | None
