"""The outbox: what people are to be told is written with the change of the alert, or not at all.

`Outbox.tell` runs in the transaction that changes the alert. A killed service loses both or
neither; what is written here is sent afterwards, as often as it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.clock import Clock
from runwatch_server.notify import notice_queries, queries
from runwatch_server.notify.cases import layer_group
from runwatch_server.notify.receivers import Receiver
from runwatch_server.notify.records import DeliveryState, Kind, NewDelivery

GROUP_S: Final = 2.0
"""Alerts of one run within so long make one message: a NaN sets off several rules at once."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """Writes notices, and a delivery for each receiver that wants to hear."""

    receivers: Sequence[Receiver]
    clock: Clock

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
        firing = await queries.find_firing(connection, alert)
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
        if not await notice_queries.insert_notice(connection, alert, layer_group=group, at=now):
            return  # a relapse: people know of it
        for receiver in self.receivers:
            if receiver.wanted.takes(alert.severity, alert.project):
                first = await queries.find_group(
                    connection, receiver.name, alert.run_id, since=now - GROUP_S
                )
                key, due_at = first or (alert.id, now + GROUP_S)
                await queries.insert_delivery(
                    connection,
                    NewDelivery(alert, receiver.name, Kind.FIRING, key, now, due_at),
                )

    async def _tell_resolved(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        now = self.clock.wall()
        if not await notice_queries.resolve_notice(connection, alert, at=now):
            return
        firing = await queries.find_firing(connection, alert)
        for receiver in self.receivers:
            told = firing.get(receiver.name)
            if told is not None and receiver.send_resolved and told.state is not DeliveryState.DEAD:
                await queries.insert_delivery(
                    connection,
                    NewDelivery(alert, receiver.name, Kind.RESOLVED, told.dedup_key, now, now),
                )
