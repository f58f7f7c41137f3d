"""Queries of ranks' answers to commands; only each rank's newest answer is stored."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import CommandState, Receipt
from runwatch.frames import Scalar
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands.records import CommandRecord, KeptReceipt
from runwatch_server.commands.tables import command_receipts


async def list_answers(
    connection: AsyncConnection, record: CommandRecord
) -> dict[int, CommandState]:
    """The newest answer of each rank that gave one."""
    found = await connection.execute(
        sa.select(command_receipts.c.rank, command_receipts.c.state).where(
            command_receipts.c.run_id == record.run_id,
            command_receipts.c.command_id == record.id,
        )
    )
    return {rank: CommandState(state) for rank, state in found}


async def list_receipts(
    connection: AsyncConnection, run_id: RunId, command_id: CommandId
) -> list[KeptReceipt]:
    """The newest answer of each rank that gave one, by rank."""
    found = await connection.execute(
        sa.select(command_receipts)
        .where(
            command_receipts.c.run_id == run_id,
            command_receipts.c.command_id == command_id,
        )
        .order_by(command_receipts.c.rank)
    )
    return [
        KeptReceipt(
            rank=row["rank"],
            state=CommandState(row["state"]),
            step=row["step"],
            at=row["at"],
            detail=msgspec.json.decode(row["detail"], type=dict[str, Scalar]),
        )
        for row in found.mappings()
    ]


async def store_receipt(
    connection: AsyncConnection, record: CommandRecord, receipt: Receipt, *, at: float
) -> None:
    """Stores a rank's answer in place of its earlier one."""
    ours = (
        command_receipts.c.run_id == record.run_id,
        command_receipts.c.command_id == record.id,
        command_receipts.c.rank == receipt.rank,
    )
    await connection.execute(sa.delete(command_receipts).where(*ours))
    await connection.execute(
        sa.insert(command_receipts).values(
            run_id=record.run_id,
            command_id=record.id,
            rank=receipt.rank,
            state=receipt.state.value,
            step=receipt.step,
            detail=msgspec.json.encode(receipt.detail).decode(),
            at=at,
        )
    )
