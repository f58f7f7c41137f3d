"""The outbox: a notification is written in the same transaction as the change of the alert.

`Outbox.tell` runs in the transaction that changes the alert, so that a killed service loses both or
neither. What is written here is sent afterwards, with as many attempts as it takes. An alert that
comes back soon counts as the same problem (`settling`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.rules import IN_CODE_NAMES
from runwatch.vocabulary import AlertId, PolicyMode, RunId
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.clock import Clock
from runwatch_server.commands.queries import find_addressee
from runwatch_server.notify import notice_queries, queries, settling_queries
from runwatch_server.notify.cases import layer_group
from runwatch_server.notify.receivers import Receiver
from runwatch_server.notify.records import (
    Delivery,
    DeliveryState,
    Kind,
    NewDelivery,
    TimeBefore,
)
from runwatch_server.notify.released import find_page_of
from runwatch_server.notify.settling import LASTING_S, is_milestone, is_soon

GROUP_S: Final = 2.0
"""Alerts of one run within this many seconds make one message: a NaN sets off several rules at
once."""

_IS_OPEN: Final = (DeliveryState.DELIVERED, DeliveryState.WAITING)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Writes notices, and a delivery for each receiver that wants the alert."""

    receivers: Sequence[Receiver]
    clock: Clock
    default_policy: PolicyMode = PolicyMode.OBSERVE

    async def notify(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        """Record that an alert fires or is resolved. Nobody is notified of alerts judged from
        frames that were sent afterwards, because they are about the past."""
        if not alert.live or alert.shadow:
            return
        if alert.state is AlertState.FIRING and alert.inhibited_by is None:
            await self._notify_firing(connection, alert)
        elif alert.state is AlertState.RESOLVED:
            await self._notify_resolved(connection, alert)

    async def page(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        """Notify of an alert that became critical: now also the receivers that did not want it
        before, and the others again."""
        await self._notify_firing(connection, alert)
        firing = await queries.find_firing(connection, alert.run_id, alert.id)
        now = self.clock.wall()
        # Those that wait, too: one of them may be on its way with what was known before.
        again = [one.number for one in firing.values() if one.state in _IS_OPEN]
        await queries.mark(connection, again, {"due_at": now})
        for receiver in self.receivers:
            if receiver.name not in firing and receiver.wanted.takes(alert.severity, alert.project):
                await queries.insert_delivery(
                    connection,
                    NewDelivery(alert, receiver.name, Kind.FIRING, alert.id, now, now),
                )

    async def _notify_firing(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        now = self.clock.wall()
        group = layer_group(alert.facts.first_layer)
        before = await self._time_before(connection, alert, group)
        times = 1 if before is None else before.times + 1
        if not await notice_queries.insert_notice(
            connection, alert, layer_group=group, times=times, at=now
        ):
            return  # a relapse: people already know
        page = await find_page_of(connection, alert)
        wanting = [one for one in self.receivers if one.wanted.takes(alert.severity, alert.project)]
        if page is not None:
            told = await _told_of_page(connection, alert, page)
        else:
            told = await _told_before(connection, alert, before, wanting)
        is_news = page is None and is_milestone(times)
        is_news = is_news or await self._asks(connection, alert.run_id)
        for receiver in wanting:
            known = told.get(receiver.name)
            if known is not None:
                delivery = _next_time(alert, known, now, is_news=is_news)
            else:
                delivery = await _first_time(connection, alert, receiver, now)
            await queries.insert_delivery(connection, delivery)

    async def _time_before(
        self, connection: AsyncConnection, alert: AlertRecord, group: str
    ) -> TimeBefore | None:
        """The earlier alert of which this one is another occurrence, if any. Silence never counts
        as a recurring problem: if it does not end, it must wake somebody, however often the run has
        come back by itself. Rules of silence, which judge no frames, are stored without a hash."""
        if not alert.rule_hash and alert.rule not in IN_CODE_NAMES:
            return None
        before = await settling_queries.find_before(connection, alert, layer_group=group)
        return before if before is not None and is_soon(before, alert.last_step) else None

    async def _asks(self, connection: AsyncConnection, run_id: RunId) -> bool:
        """Whether a person is asked before each action, and so has to decide each time."""
        addressee = await find_addressee(connection, run_id)
        policy = None if addressee is None else addressee.policy
        return (policy or self.default_policy) is PolicyMode.ASK

    async def _notify_resolved(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        now = self.clock.wall()
        if not await notice_queries.resolve_notice(connection, alert, at=now):
            return
        firing = await queries.find_firing(connection, alert.run_id, alert.id)
        for receiver in self.receivers:
            told = firing.get(receiver.name)
            if told is not None and receiver.send_resolved and told.state is not DeliveryState.DEAD:
                await queries.insert_delivery(
                    connection,
                    NewDelivery(alert, receiver.name, Kind.RESOLVED, told.dedup_key, now, now),
                )


async def _told_of_page(
    connection: AsyncConnection, alert: AlertRecord, page: AlertId
) -> dict[str, Delivery]:
    """What each receiver has open of the page that explained the alert."""
    told = await queries.find_firing(connection, alert.run_id, page)
    return {name: known for name, known in told.items() if known.state in _IS_OPEN}


async def _told_before(
    connection: AsyncConnection,
    alert: AlertRecord,
    before: TimeBefore | None,
    receivers: Sequence[Receiver],
) -> dict[str, Delivery]:
    """What each receiver has open, and keeps open, of the earlier occurrence."""
    if before is None or not await settling_queries.take_over(connection, alert.run_id, before):
        return {}
    told = await queries.find_firing(connection, alert.run_id, before.alert_id)
    return {
        receiver.name: told[receiver.name]
        for receiver in receivers
        if receiver.name in told and await _keeps_open(connection, receiver, told[receiver.name])
    }


async def _keeps_open(connection: AsyncConnection, receiver: Receiver, told: Delivery) -> bool:
    """Whether a receiver that was notified of the earlier occurrence has the incident open and
    keeps it open: the earlier one's end is not sent, only the end of this one."""
    if told.state not in _IS_OPEN:
        return False
    return not receiver.send_resolved or await queries.withhold_end(connection, told)


def _next_time(alert: AlertRecord, told: Delivery, now: float, *, is_news: bool) -> NewDelivery:
    """A delivery within an incident that the receiver has open: in one message with the earlier
    occurrence if that has not been sent yet, as news of its own, or counted as sent."""
    if told.state is DeliveryState.WAITING:
        due_at, delivered_at = told.due_at, None
    elif is_news:
        due_at, delivered_at = now + GROUP_S, None
    else:
        due_at, delivered_at = min(told.due_at, now + LASTING_S), told.delivered_at
    return NewDelivery(alert, told.receiver, Kind.FIRING, told.dedup_key, now, due_at, delivered_at)


async def _first_time(
    connection: AsyncConnection, alert: AlertRecord, receiver: Receiver, now: float
) -> NewDelivery:
    """A delivery for a new incident, or for one that is about to be sent."""
    first = await queries.find_group(connection, receiver.name, alert.run_id, since=now - GROUP_S)
    key, due_at = first or (alert.id, now + GROUP_S)
    return NewDelivery(alert, receiver.name, Kind.FIRING, key, now, due_at)
