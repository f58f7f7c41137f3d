"""The outbox: what people are to be told is written with the change of the alert, or not at all.

`Outbox.tell` runs in the transaction that changes the alert. A killed service loses both or
neither; what is written here is sent afterwards, as often as it takes. What comes back soon is told
as the same trouble (`settling`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.rules import IN_CODE_NAMES
from runwatch.vocabulary import PolicyMode, RunId
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
from runwatch_server.notify.settling import LASTING_S, is_milestone, is_soon

GROUP_S: Final = 2.0
"""Alerts of one run within so long make one message: a NaN sets off several rules at once."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """Writes notices, and a delivery for each receiver that wants to hear."""

    receivers: Sequence[Receiver]
    clock: Clock
    default_policy: PolicyMode = PolicyMode.OBSERVE

    async def tell(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        """Note that an alert fires or is resolved. Of alerts judged from frames that came after
        the fact nobody is told: what they speak of is past."""
        if not alert.live or alert.shadow:
            return
        if alert.state is AlertState.FIRING and alert.inhibited_by is None:
            await self._tell_firing(connection, alert)
        elif alert.state is AlertState.RESOLVED:
            await self._tell_resolved(connection, alert)

    async def page(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        """Tell of an alert that became critical: those who did not want to hear of it before do
        now, and those who did hear again."""
        await self._tell_firing(connection, alert)
        firing = await queries.find_firing(connection, alert.run_id, alert.id)
        now = self.clock.wall()
        again = [one.number for one in firing.values() if one.state is DeliveryState.DELIVERED]
        await queries.mark(connection, again, {"due_at": now})
        for receiver in self.receivers:
            if receiver.name not in firing and receiver.wanted.takes(alert.severity, alert.project):
                await queries.insert_delivery(
                    connection,
                    NewDelivery(alert, receiver.name, Kind.FIRING, alert.id, now, now),
                )

    async def _tell_firing(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        now = self.clock.wall()
        group = layer_group(alert.facts.first_layer)
        before = await self._time_before(connection, alert, group)
        times = 1 if before is None else before.times + 1
        if not await notice_queries.insert_notice(
            connection, alert, layer_group=group, times=times, at=now
        ):
            return  # a relapse: people know of it
        told: dict[str, Delivery] = {}
        if before is not None and await settling_queries.take_over(
            connection, alert.run_id, before
        ):
            told = await queries.find_firing(connection, alert.run_id, before.alert_id)
        is_news = is_milestone(times) or await self._asks(connection, alert.run_id)
        for receiver in self.receivers:
            if receiver.wanted.takes(alert.severity, alert.project):
                known = told.get(receiver.name)
                if known is not None and await _keeps_open(connection, receiver, known):
                    delivery = _next_time(alert, known, now, is_news=is_news)
                else:
                    delivery = await _first_time(connection, alert, receiver, now)
                await queries.insert_delivery(connection, delivery)

    async def _time_before(
        self, connection: AsyncConnection, alert: AlertRecord, group: str
    ) -> TimeBefore | None:
        """What the alert is another time of, if it is. Silence is no trouble that comes and goes:
        one that does not end must wake somebody, however often the run has come back by itself. Its
        rules, which no frame is judged by, are kept without a hash."""
        if not alert.rule_hash and alert.rule not in IN_CODE_NAMES:
            return None
        before = await settling_queries.find_before(connection, alert, layer_group=group)
        return before if before is not None and is_soon(before, alert.last_step) else None

    async def _asks(self, connection: AsyncConnection, run_id: RunId) -> bool:
        """Whether a person is asked for each action: then there is one to decide on each time."""
        addressee = await find_addressee(connection, run_id)
        policy = None if addressee is None else addressee.policy
        return (policy or self.default_policy) is PolicyMode.ASK

    async def _tell_resolved(self, connection: AsyncConnection, alert: AlertRecord) -> None:
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


async def _keeps_open(connection: AsyncConnection, receiver: Receiver, told: Delivery) -> bool:
    """Whether a receiver that is told of the time before takes the incident for open, and goes on
    doing so: its end is not told, but the end of what comes now."""
    if told.state not in (DeliveryState.DELIVERED, DeliveryState.WAITING):
        return False
    return not receiver.send_resolved or await queries.withhold_end(connection, told)


def _next_time(alert: AlertRecord, told: Delivery, now: float, *, is_news: bool) -> NewDelivery:
    """Part of an incident that a receiver has open: in one message with the time before where that
    has not left yet, news by itself, or counted as told."""
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
    """An incident of its own, or part of one that is about to be told."""
    first = await queries.find_group(connection, receiver.name, alert.run_id, since=now - GROUP_S)
    key, due_at = first or (alert.id, now + GROUP_S)
    return NewDelivery(alert, receiver.name, Kind.FIRING, key, now, due_at)
