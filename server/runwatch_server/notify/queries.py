"""All queries of the table of deliveries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import AlertId, RunId
from runwatch_server.notify.records import Delivery, DeliveryState, Kind, NewDelivery
from runwatch_server.notify.tables import IS_SETTLING, deliveries, notices

_OF_NOTICE: Final = (notices.c.run_id == deliveries.c.run_id) & (
    notices.c.alert_id == deliveries.c.alert_id
)


async def count_unsent_ends(connection: AsyncConnection, run_id: RunId) -> int:
    """Number of waiting deliveries that report the ends of a run's alerts."""
    found = await connection.execute(
        sa.select(sa.func.count()).where(
            deliveries.c.run_id == run_id,
            deliveries.c.kind == Kind.RESOLVED.value,
            deliveries.c.state == DeliveryState.WAITING.value,
        )
    )
    return found.scalar_one()


async def find_group(
    connection: AsyncConnection, receiver: str, run_id: RunId, *, since: float
) -> tuple[str, float] | None:
    """Dedup key and time of a message about the run that is about to be sent."""
    found = await connection.execute(
        sa.select(deliveries.c.dedup_key, deliveries.c.due_at)
        .where(
            deliveries.c.receiver == receiver,
            deliveries.c.state == DeliveryState.WAITING.value,
            deliveries.c.run_id == run_id,
            deliveries.c.kind == Kind.FIRING.value,
            deliveries.c.attempts == 0,
            deliveries.c.created_at >= since,
        )
        .order_by(deliveries.c.number)
        .limit(1)
    )
    row = found.first()
    return None if row is None else (row.dedup_key, row.due_at)


async def insert_delivery(connection: AsyncConnection, new: NewDelivery) -> None:
    await connection.execute(
        sa.insert(deliveries).values(
            run_id=new.alert.run_id,
            alert_id=new.alert.id,
            project=new.alert.project,
            receiver=new.receiver,
            kind=new.kind.value,
            dedup_key=new.dedup_key,
            state=(
                DeliveryState.WAITING if new.delivered_at is None else DeliveryState.DELIVERED
            ).value,
            created_at=new.created_at,
            due_at=new.due_at,
            delivered_at=new.delivered_at,
            attempts=0,
        )
    )


async def find_firing(
    connection: AsyncConnection, run_id: RunId, alert_id: AlertId
) -> dict[str, Delivery]:
    """The delivery that reports to each receiver that an alert fires."""
    found = await connection.execute(
        sa.select(deliveries).where(
            deliveries.c.run_id == run_id,
            deliveries.c.alert_id == alert_id,
            deliveries.c.kind == Kind.FIRING.value,
        )
    )
    return {row["receiver"]: _delivery(row) for row in found.mappings()}


async def find_beginnings(
    connection: AsyncConnection, found: Sequence[Delivery]
) -> dict[int, DeliveryState]:
    """What became of the deliveries that reported the beginnings of what these report the ends of,
    by the numbers of the latter."""
    ends = [one.number for one in found if one.kind is Kind.RESOLVED]
    begun = deliveries.alias("begun")
    is_beginning = (
        (begun.c.run_id == deliveries.c.run_id)
        & (begun.c.alert_id == deliveries.c.alert_id)
        & (begun.c.receiver == deliveries.c.receiver)
        & (begun.c.kind == Kind.FIRING.value)
    )
    query = sa.select(deliveries.c.number, begun.c.state).join_from(deliveries, begun, is_beginning)
    rows = await connection.execute(query.where(deliveries.c.number.in_(ends)))
    return {row.number: DeliveryState(row.state) for row in rows}


async def withhold_end(connection: AsyncConnection, told: Delivery) -> bool:
    """Withdraw the delivery that reports the end of an alert; returns whether it had not been tried
    yet."""
    done = await connection.execute(
        sa.update(deliveries)
        .where(
            deliveries.c.run_id == told.run_id,
            deliveries.c.alert_id == told.alert_id,
            deliveries.c.receiver == told.receiver,
            deliveries.c.kind == Kind.RESOLVED.value,
            deliveries.c.state == DeliveryState.WAITING.value,
            deliveries.c.attempts == 0,
        )
        .values(state=DeliveryState.WITHHELD.value)
    )
    return done.rowcount == 1


async def list_due(
    connection: AsyncConnection, receiver: str, *, now: float, horizon_s: float, limit: int
) -> list[Delivery]:
    """Deliveries to send now, the longest due first: those that wait, except ends that settle, and
    repeats of alerts that go on and were not acknowledged. A delivery due beyond the horizon was
    written by a clock that has been set back since, and is due as well."""
    due = (deliveries.c.due_at <= now) | (deliveries.c.due_at > now + horizon_s)
    waiting = sa.select(deliveries).where(
        deliveries.c.receiver == receiver,
        due,
        deliveries.c.state == DeliveryState.WAITING.value,
        (deliveries.c.kind != Kind.RESOLVED.value) | ~_has_notice(IS_SETTLING),
    )
    repeated = sa.select(deliveries).where(
        deliveries.c.number.in_(_firing_of_open(receiver)),
        due,
        deliveries.c.state == DeliveryState.DELIVERED.value,
    )
    both = sa.union_all(waiting, repeated).subquery()
    found = await connection.execute(
        sa.select(both).order_by(both.c.due_at, both.c.number).limit(limit)
    )
    return [_delivery(row) for row in found.mappings()]


async def list_deliveries(
    connection: AsyncConnection,
    *,
    project: str | None,
    state: DeliveryState | None,
    before: int | None,
    limit: int,
) -> list[Delivery]:
    """Deliveries, newest first."""
    wanted = sa.select(deliveries).order_by(deliveries.c.number.desc()).limit(limit)
    if project is not None:
        wanted = wanted.where(deliveries.c.project == project)
    if state is not None:
        wanted = wanted.where(deliveries.c.state == state.value)
    if before is not None:
        wanted = wanted.where(deliveries.c.number < before)
    found = await connection.execute(wanted)
    return [_delivery(row) for row in found.mappings()]


async def count_deliveries(connection: AsyncConnection, receiver: str) -> dict[str, int]:
    """Number of deliveries in each state."""
    found = await connection.execute(
        sa.select(deliveries.c.state, sa.func.count().label("num"))
        .where(deliveries.c.receiver == receiver)
        .group_by(deliveries.c.state)
    )
    return {row.state: row.num for row in found}


async def count_open(connection: AsyncConnection, receiver: str, dedup_key: str) -> int:
    """Number of alerts of an incident, of those the receiver was notified of, that go on or may
    come back."""
    found = await connection.execute(
        sa.select(sa.func.count()).where(
            deliveries.c.receiver == receiver,
            deliveries.c.dedup_key == dedup_key,
            deliveries.c.kind == Kind.FIRING.value,
            deliveries.c.state == DeliveryState.DELIVERED.value,
            _has_notice(notices.c.resolved_at.is_(None) | IS_SETTLING),
        )
    )
    return found.scalar_one()


async def claim(connection: AsyncConnection, found: Sequence[Delivery], *, until: float) -> bool:
    """Claim deliveries; returns whether all of them are still as they were found. Then nobody else
    finds them due until that time. Deliveries that another replica is claiming at the moment are
    not waited for."""
    numbers = (
        sa.select(deliveries.c.number).where(_as_found(found)).with_for_update(skip_locked=True)
    )
    free = (await connection.scalars(numbers)).all()
    if len(free) < len(found):
        return False
    await mark(connection, free, {"due_at": until})
    return True


async def mark(
    connection: AsyncConnection, numbers: Collection[int], values: Mapping[str, object]
) -> None:
    await connection.execute(
        sa.update(deliveries).where(deliveries.c.number.in_(numbers)).values(**values)
    )


def due_unless_changed(found: Sequence[Delivery], at: float) -> sa.ColumnElement[float]:
    """The next date of deliveries that were sent; one whose date was changed meanwhile keeps that,
    as of an alert that became critical while it was sent as a warning."""
    return sa.case((_as_found(found), at), else_=deliveries.c.due_at)


async def prune(connection: AsyncConnection, *, before: float) -> None:
    """Delete deliveries that were settled long ago and whose alerts are over."""
    await connection.execute(
        sa.delete(deliveries).where(
            deliveries.c.state != DeliveryState.WAITING.value,
            deliveries.c.created_at < before,
            _has_notice(notices.c.resolved_at < before),
        )
    )


def _as_found(found: Sequence[Delivery]) -> sa.ColumnElement[bool]:
    return sa.or_(
        *(
            (deliveries.c.number == one.number)
            & (deliveries.c.due_at == one.due_at)
            & (deliveries.c.state == one.state.value)
            for one in found
        )
    )


def _firing_of_open(receiver: str) -> sa.Select[tuple[int]]:
    """The numbers of deliveries that reported alerts which go on. Starts from the notices, which
    are few even if much was delivered: for a join SQLite would read all deliveries."""
    number = sa.select(deliveries.c.number).where(
        _OF_NOTICE, deliveries.c.receiver == receiver, deliveries.c.kind == Kind.FIRING.value
    )
    of_notice = number.correlate(notices).scalar_subquery()
    return sa.select(of_notice).where(notices.c.resolved_at.is_(None))


def _has_notice(wanted: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether the notice of a delivery's alert meets a condition."""
    return sa.exists().where(_OF_NOTICE, wanted).correlate(deliveries)


def _delivery(row: sa.RowMapping) -> Delivery:
    columns: dict[str, Any] = {
        **row,
        "kind": Kind(row["kind"]),
        "state": DeliveryState(row["state"]),
    }
    return Delivery(**columns)
