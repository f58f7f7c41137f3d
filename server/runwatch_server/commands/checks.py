"""Checks before a command may change."""

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import AnyAction, CommandState, Receipt
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands import event_queries, lifecycle, queries
from runwatch_server.commands.records import Addressee, CommandMark, CommandRecord
from runwatch_server.errors import ConflictError, NotFoundError, UnprocessableError
from runwatch_server.runs.checks import run_not_found


async def find_addressee(connection: AsyncConnection, run_id: RunId) -> Addressee:
    """Raises NotFoundError."""
    addressee = await queries.find_addressee(connection, run_id)
    if addressee is None:
        raise run_not_found(run_id)
    return addressee


async def commandable(connection: AsyncConnection, run_id: RunId) -> Addressee:
    addressee = await find_addressee(connection, run_id)
    if addressee.state.is_ended:
        raise ConflictError("run_ended", f"The run is {addressee.state}: no trainer would obey.")
    if addressee.attempt == 0:
        raise ConflictError("no_attempt", "The run has no attempt yet: no trainer would obey.")
    return addressee


async def existing_command(connection: AsyncConnection, command_id: CommandId) -> CommandRecord:
    record = await queries.find_command(connection, command_id)
    if record is None:
        raise NotFoundError("command_not_found", f"There is no command {command_id!r}.")
    return record


async def why_over(
    connection: AsyncConnection, record: CommandRecord | CommandMark, now: float
) -> str | None:
    """Why a pending command can no longer be applied; None if it can, or if its run was removed,
    whose commands are about to be."""
    if not now < record.expires_at:
        return "not applied in time"
    addressee = await queries.find_addressee(connection, record.run_id)
    if addressee is None:
        return None
    if addressee.state.is_ended:
        return f"the run is {addressee.state}"
    if record.attempt != addressee.attempt:
        return f"attempt {record.attempt} is over"
    return None


def same_order(known: CommandRecord, action: AnyAction) -> CommandRecord:
    if known.action != action:
        raise UnprocessableError(
            "idempotency_conflict", "The Idempotency-Key was used for another command."
        )
    return known


async def check_was_ordered(connection: AsyncConnection, record: CommandRecord) -> None:
    """Raises ConflictError for a receipt of a command that was never sent to a trainer.

    That is a proposal, even one that has ended: no trainer can have applied it.
    """
    if record.state in lifecycle.DELIVERABLE:
        return
    events = await event_queries.list_events(connection, record.run_id, record.id)
    if not any(event.kind == CommandState.QUEUED for event in events):
        raise ConflictError(
            "not_ordered", f"The command is {record.state} and was never sent to a trainer."
        )


def check_receipt(command_id: CommandId, receipt: Receipt) -> None:
    if receipt.command_id != command_id:
        raise UnprocessableError(
            "invalid_receipt",
            f"command_id: found {receipt.command_id!r}, wanted {command_id!r} as in the path",
        )
    if receipt.state not in lifecycle.RECEIPT_STATES:
        wanted = ", ".join(lifecycle.RECEIPT_STATES)
        raise UnprocessableError(
            "invalid_receipt", f"state: found {receipt.state!r}, wanted one of {wanted}"
        )
