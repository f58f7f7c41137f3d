"""Queries of commands, and of the runs that they are for."""

from collections.abc import Mapping
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import AnyAction, CommandState, action_from_document
from runwatch.frames import Scalar
from runwatch.vocabulary import AlertId, CommandId, PolicyMode, RunId, RunState
from runwatch_server.commands.lifecycle import UNDER_WAY
from runwatch_server.commands.records import Addressee, CommandMark, CommandRecord
from runwatch_server.commands.tables import commands
from runwatch_server.runs.tables import attempts, runs

_FIND_ADDRESSEE: Final = (
    sa.select(runs, attempts.c.world_size, attempts.c.allow, attempts.c.signing_key)
    .select_from(
        runs.outerjoin(
            attempts,
            (attempts.c.run_id == runs.c.id) & (attempts.c.attempt == runs.c.current_attempt),
        )
    )
    .where(runs.c.id == bindparam("of_run"))
)
_IS_UNDER_WAY: Final = (
    commands.c.state.in_([s.value for s in UNDER_WAY]),
    sa.exists().where(runs.c.id == commands.c.run_id),
)
_MARK_UNDER_WAY: Final = (
    sa.select(*(commands.c[name] for name in ("run_id", "id", "attempt", "state", "expires_at")))
    .where(*_IS_UNDER_WAY)
    .order_by(commands.c.id)
)


async def find_addressee(connection: AsyncConnection, run_id: RunId) -> Addressee | None:
    found = await connection.execute(_FIND_ADDRESSEE, {"of_run": run_id})
    row = found.mappings().first()
    if row is None:
        return None
    return Addressee(
        run_id=run_id,
        project=row["project"],
        name=row["name"],
        state=RunState(row["state"]),
        policy=None if row["policy"] is None else PolicyMode(row["policy"]),
        attempt=row["current_attempt"],
        num_ranks=row["world_size"] or 1,
        allow=frozenset((row["allow"] or "").split()),
        last_step=row["last_step"],
        signing_key=row["signing_key"],
    )


async def insert_command(connection: AsyncConnection, record: CommandRecord) -> None:
    await connection.execute(
        sa.insert(commands).values(
            run_id=record.run_id,
            id=record.id,
            attempt=record.attempt,
            segment=record.segment,
            kind=record.kind,
            action=_to_json(record.action),
            state=record.state.value,
            reason=record.reason,
            requested_by=record.requested_by,
            automatic=record.automatic,
            alert_id=record.alert_id,
            action_index=record.action_index,
            after_id=record.after_id,
            idempotency_key=record.idempotency_key,
            created_at=record.created_at,
            expires_at=record.expires_at,
            detail=_to_json(record.detail),
            signature=record.signature,
        )
    )


async def update_command(
    connection: AsyncConnection, record: CommandRecord, **values: object
) -> None:
    """Sets columns of one command. The caller appends the event that says why."""
    await connection.execute(
        sa.update(commands)
        .where(commands.c.run_id == record.run_id, commands.c.id == record.id)
        .values(**values)
    )


async def find_command(connection: AsyncConnection, command_id: CommandId) -> CommandRecord | None:
    found = await connection.execute(sa.select(commands).where(commands.c.id == command_id))
    row = found.mappings().first()
    return None if row is None else _record(row)


async def find_by_idempotency_key(
    connection: AsyncConnection, run_id: RunId, key: str
) -> CommandRecord | None:
    found = await connection.execute(
        sa.select(commands).where(commands.c.run_id == run_id, commands.c.idempotency_key == key)
    )
    row = found.mappings().first()
    return None if row is None else _record(row)


async def list_commands(
    connection: AsyncConnection,
    run_id: RunId,
    *,
    before_id: str | None = None,
    limit: int | None = None,
) -> list[CommandRecord]:
    """The commands of a run, newest first."""
    wanted = sa.select(commands).where(commands.c.run_id == run_id)
    if before_id is not None:
        wanted = wanted.where(commands.c.id < before_id)
    found = await connection.execute(wanted.order_by(commands.c.id.desc()).limit(limit))
    return [_record(row) for row in found.mappings()]


async def list_for_alert(
    connection: AsyncConnection, run_id: RunId, alert_id: AlertId
) -> list[CommandRecord]:
    found = await connection.execute(
        sa.select(commands)
        .where(commands.c.run_id == run_id, commands.c.alert_id == alert_id)
        .order_by(commands.c.id)
    )
    return [_record(row) for row in found.mappings()]


async def list_under_way(connection: AsyncConnection, run_id: RunId) -> list[CommandRecord]:
    """A run's commands that have not ended, oldest first; none if it is being removed."""
    wanted = sa.select(commands).where(*_IS_UNDER_WAY, commands.c.run_id == run_id)
    found = await connection.execute(wanted.order_by(commands.c.id))
    return [_record(row) for row in found.mappings()]


async def mark_under_way(connection: AsyncConnection) -> list[CommandMark]:
    """The commands of all runs that have not ended, oldest first."""
    found = await connection.execute(_MARK_UNDER_WAY)
    return [
        CommandMark(
            RunId(row.run_id),
            CommandId(row.id),
            row.attempt,
            CommandState(row.state),
            row.expires_at,
        )
        for row in found
    ]


async def find_follower(connection: AsyncConnection, record: CommandRecord) -> CommandRecord | None:
    """The command that waits for this one."""
    found = await connection.execute(
        sa.select(commands).where(
            commands.c.run_id == record.run_id,
            commands.c.after_id == record.id,
            commands.c.state == CommandState.PROPOSED.value,
        )
    )
    row = found.mappings().first()
    return None if row is None else _record(row)


def _record(row: sa.RowMapping) -> CommandRecord:
    return CommandRecord(
        run_id=RunId(row["run_id"]),
        id=CommandId(row["id"]),
        attempt=row["attempt"],
        action=action_from_document(msgspec.json.decode(row["action"])),
        state=CommandState(row["state"]),
        reason=row["reason"],
        requested_by=row["requested_by"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        automatic=row["automatic"],
        segment=row["segment"],
        alert_id=None if row["alert_id"] is None else AlertId(row["alert_id"]),
        action_index=row["action_index"],
        after_id=None if row["after_id"] is None else CommandId(row["after_id"]),
        idempotency_key=row["idempotency_key"],
        ended_at=row["ended_at"],
        ended_step=row["ended_step"],
        detail=msgspec.json.decode(row["detail"], type=dict[str, Scalar]),
        signature=row["signature"],
    )


def _to_json(document: AnyAction | Mapping[str, object]) -> str:
    return msgspec.json.encode(document).decode()
