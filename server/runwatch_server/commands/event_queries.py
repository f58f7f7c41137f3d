"""The events of commands, in the order in which they were written."""

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands.records import CommandEvent, CommandRecord
from runwatch_server.commands.tables import command_events
from runwatch_server.db import EVENTS, wait_for_lock


async def append_event(
    connection: AsyncConnection,
    record: CommandRecord,
    kind: str,
    *,
    at: float,
    actor: str,
    rank: int | None = None,
    detail: Mapping[str, object] | None = None,
) -> None:
    await wait_for_lock(connection, EVENTS)
    await connection.execute(
        sa.insert(command_events).values(
            run_id=record.run_id,
            command_id=record.id,
            kind=kind,
            rank=rank,
            at=at,
            actor=actor,
            detail=msgspec.json.encode(detail or {}).decode(),
        )
    )


async def list_events(
    connection: AsyncConnection, run_id: RunId, command_id: CommandId
) -> list[CommandEvent]:
    found = await connection.execute(
        sa.select(command_events)
        .where(command_events.c.run_id == run_id, command_events.c.command_id == command_id)
        .order_by(command_events.c.number)
    )
    return [_event(row) for row in found.mappings()]


async def list_events_after(
    connection: AsyncConnection, number: int, *, run_id: RunId | None, limit: int
) -> list[CommandEvent]:
    """The events of commands after a given one, in the order in which they were written."""
    wanted = sa.select(command_events).where(command_events.c.number > number)
    if run_id is not None:
        wanted = wanted.where(command_events.c.run_id == run_id)
    found = await connection.execute(wanted.order_by(command_events.c.number).limit(limit))
    return [_event(row) for row in found.mappings()]


async def last_event_number(connection: AsyncConnection, run_id: RunId) -> int:
    """Of a run: its events are committed in the order of their numbers; those of all are not."""
    events = sa.select(sa.func.max(command_events.c.number))
    found = await connection.execute(events.where(command_events.c.run_id == run_id))
    return found.scalar_one() or 0


def _event(row: sa.RowMapping) -> CommandEvent:
    return CommandEvent(
        number=row["number"],
        run_id=RunId(row["run_id"]),
        command_id=CommandId(row["command_id"]),
        kind=row["kind"],
        rank=row["rank"],
        at=row["at"],
        actor=row["actor"],
        detail=msgspec.json.decode(row["detail"], type=dict[str, object]),
    )
