"""Decides which deliveries are sent now, and which of them in one message. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.alerts import AlertState
from runwatch.vocabulary import AlertId
from runwatch_server.notify.cases import Case, labels_of
from runwatch_server.notify.records import Delivery, DeliveryState, Kind
from runwatch_server.notify.silences import Muting

FIRST_RETRY_S: Final = 5.0
LONGEST_RETRY_S: Final = 600.0
GIVE_UP_S: Final = 86400.0


class Verdict(StrEnum):
    SEND = "send"
    HOLD = "hold"
    """Not now; it is looked at again later."""
    WITHHOLD = "withhold"
    """Nobody needs to be notified of it any more."""


@dataclass(frozen=True, slots=True)
class DeliveryGroup:
    """The deliveries of one message, with their cases."""

    dedup_key: str
    kind: Kind
    deliveries: tuple[Delivery, ...]
    """Oldest first."""
    cases: tuple[Case, ...]
    """Open ones first, and of these the most urgent: a pager shows little more than the beginning
    of a message."""


def judge(
    delivery: Delivery, case: Case, *, firing: DeliveryState | None, silenced: bool
) -> Verdict:
    """What to do with a delivery that is due. If the news is that the alert is over, `firing` is
    what became of the message that it fires. An alert that another explains is treated as
    silenced."""
    if delivery.kind is Kind.RESOLVED:
        return _of_end(firing)
    silenced = silenced or not case.alert.is_notifiable
    if delivery.state is DeliveryState.DELIVERED:  # a repeat
        is_there = case.alert.state is AlertState.FIRING  # not just recovering
        goes_on = is_there and not case.is_resolved and case.alert.acked_at is None
        return Verdict.SEND if goes_on and not silenced else Verdict.HOLD
    if not silenced:
        return Verdict.SEND
    return Verdict.WITHHOLD if case.is_resolved else Verdict.HOLD


def _of_end(firing: DeliveryState | None) -> Verdict:
    """The end of an alert is sent to those who were notified of its beginning, and after it. It is
    sent even if it is silenced or explained by then: otherwise their incident would stay open for
    good."""
    if firing is DeliveryState.DELIVERED:
        return Verdict.SEND
    return Verdict.HOLD if firing is DeliveryState.WAITING else Verdict.WITHHOLD


def group_deliveries(
    deliveries: Sequence[Delivery], cases: Mapping[AlertId, Case]
) -> list[DeliveryGroup]:
    """The deliveries grouped into messages: one for each incident and kind of news."""
    together: dict[tuple[str, Kind], list[Delivery]] = {}
    for delivery in deliveries:
        together.setdefault((delivery.dedup_key, delivery.kind), []).append(delivery)
    return [
        DeliveryGroup(
            key,
            kind,
            tuple(members),
            tuple(sorted((cases[one.alert_id] for one in members), key=_urgency)),
        )
        for (key, kind), members in together.items()
    ]


def _urgency(case: Case) -> tuple[bool, int]:
    return case.is_reported_over, -case.alert.severity.gravity


def is_held_back(case: Case, muting: Muting, watchdog: str) -> bool:
    return muting.covers(labels_of(case, watchdog))


def retry_after_s(attempts: int) -> float:
    """Seconds to wait after this many failures: 5 s, doubled up to 10 min."""
    return min(FIRST_RETRY_S * 2.0 ** min(attempts - 1, 10), LONGEST_RETRY_S)


def is_given_up(delivery: Delivery, *, now: float) -> bool:
    """Whether the delivery has been tried for a day; to be asked after each failure."""
    return delivery.first_failed_at is not None and now - delivery.first_failed_at >= GIVE_UP_S
