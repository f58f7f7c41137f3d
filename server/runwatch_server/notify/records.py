"""One alert's news on its way to one receiver, as it is kept."""

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
    """Tried for a day without success, and given up."""
    WITHHELD = "withheld"
    """Nobody has to hear of it any more: a silence held it back until then, or what was over came
    back before its end was told."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    alert: AlertRecord
    receiver: str
    kind: Kind
    dedup_key: str
    created_at: float
    due_at: float
    delivered_at: float | None = None
    """When the receiver was told of the incident that this is part of; None: it is to be told."""


@dataclass(frozen=True, slots=True)
class TimeBefore:
    """An alert that people heard of, seen from the next one of the same trouble."""

    alert_id: AlertId
    times: int
    """How often the trouble had come by then."""
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
