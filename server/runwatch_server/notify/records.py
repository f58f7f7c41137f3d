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
    """A silence held it back until nobody had to hear of it any more."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    alert: AlertRecord
    receiver: str
    kind: Kind
    dedup_key: str
    created_at: float
    due_at: float


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
