"""Changes a command's state, and writes the event, the audit entry and what follows from it.

To be used inside one transaction, so that a change and its trace are on disk together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import SIGNATURE, CommandState
from runwatch.frames import Scalar
from runwatch.policy import ALREADY_ROLLED_BACK
from runwatch.vocabulary import PolicyMode
from runwatch_server.alerts.actions.recovery import note_command
from runwatch_server.alerts.queries import find_alert
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.commands import event_queries, queries
from runwatch_server.commands.records import Addressee, CommandRecord
from runwatch_server.commands.signing import Signer, UnsignedError

COMMAND_TTL_S: Final = 600.0
"""Seconds after which a command that no rank has accepted is stale: its reason has passed."""
PROPOSAL_TTL_S: Final = 12 * 3600.0
"""Seconds that a proposal waits for approval: long enough for a night to pass."""

TRAINER: Final = "trainer"
SERVICE: Final = "service"
POLICY: Final = "policy"


async def put(
    connection: AsyncConnection,
    record: CommandRecord,
    addressee: Addressee,
    *,
    actor: str,
    signer: Signer,
) -> None:
    """Stores a new command. Raises UnsignedError."""
    record = signer.sign(record, addressee)
    await queries.insert_command(connection, record)
    await event_queries.append_event(
        connection, record, record.state, at=record.created_at, actor=actor
    )
    await _audit(connection, record, addressee, f"command_{record.state}", actor, record.created_at)


async def enter(
    connection: AsyncConnection,
    record: CommandRecord,
    addressee: Addressee,
    state: CommandState,
    *,
    at: float,
    actor: str,
    by: str | None = None,
    signer: Signer,
    step: int | None = None,
    detail: Mapping[str, Scalar] | None = None,
    is_wish: bool = False,
) -> CommandRecord:
    """Moves a command to a state; returns it in that state.

    `by` is the key with which the trainer told it; `is_wish`: people want the command to end.
    Raises UnsignedError if a proposal that was not signed by us would become an order.
    """
    found = detail or {}
    is_wish = is_wish or _is_wish(record, state, actor)
    after = replace(record, state=state)
    if state is CommandState.QUEUED:
        signer.check(record, addressee)
        after = replace(after, expires_at=at + COMMAND_TTL_S, after_id=None)
        after = signer.sign(after, addressee)
    if state.is_ended:
        after = replace(after, ended_at=at, ended_step=step, detail=found)
    await queries.update_command(
        connection,
        record,
        state=state.value,
        expires_at=after.expires_at,
        after_id=after.after_id,
        signature=after.signature,
        ended_at=after.ended_at,
        ended_step=after.ended_step,
        detail=msgspec.json.encode(after.detail).decode(),
    )
    await event_queries.append_event(connection, record, state, at=at, actor=actor, detail=found)
    if state is CommandState.REJECTED and SIGNATURE in found:
        await _audit(connection, record, addressee, "command_not_authentic", by or actor, at)
    elif by is not None or actor not in (TRAINER, SERVICE):
        await _audit(connection, record, addressee, f"command_{state}", by or actor, at)
    if state.is_ended:
        commands = await queries.list_commands(connection, record.run_id)
        segment = _segment(commands, record.attempt)
        await note_command(
            connection,
            after,
            state,
            at=at,
            step=step,
            segment=segment,
            detail=found,
            is_wish=is_wish,
        )
        await _follow_up(connection, after, addressee, at, signer, is_wish=is_wish)
    return after


def _is_wish(record: CommandRecord, state: CommandState, actor: str) -> bool:
    """Whether people wanted the command to end without effect: they cancelled it, or left a
    proposal unanswered."""
    if state is CommandState.CANCELLED:
        return actor not in (TRAINER, SERVICE, POLICY)
    return record.state is CommandState.PROPOSED and record.after_id is None


def is_undone(commands: Sequence[CommandRecord], attempt: int, segment: int) -> bool:
    """Whether a rollback has undone a segment's steps."""
    return segment < _segment(commands, attempt)


def _segment(commands: Sequence[CommandRecord], attempt: int) -> int:
    """The segment that the attempt is in: each applied rollback opens the next one."""
    rollbacks = [
        command
        for command in commands
        if command.kind == "rollback"
        and command.attempt == attempt
        and command.state is CommandState.APPLIED
    ]
    return len(rollbacks)


async def _follow_up(
    connection: AsyncConnection,
    ended: CommandRecord,
    addressee: Addressee,
    at: float,
    signer: Signer,
    *,
    is_wish: bool,
) -> None:
    """Queues the command that waited for this one, if there still is a reason for it.

    Otherwise it is cancelled. People who cancelled this one, or set the run to a policy other than
    `auto`, do not want the remaining commands of its alert either.
    """
    follower = await queries.find_follower(connection, ended)
    if follower is None:
        return
    objection = await _objection(connection, follower, ended, addressee)
    if objection is None:
        objection = _doubt(follower, addressee, signer)
    if objection is None and ended.after_id is not None:  # `ended` itself waited: take its place
        await queries.update_command(connection, follower, after_id=ended.after_id)
        return
    state = CommandState.QUEUED if objection is None else CommandState.CANCELLED
    detail: dict[str, Scalar] = {} if objection is None else {"reason": objection}
    await enter(
        connection,
        follower,
        addressee,
        state,
        at=at,
        actor=POLICY,
        signer=signer,
        detail=detail,
        is_wish=_is_held_back(addressee) or (is_wish and follower.alert_id == ended.alert_id),
    )


def _doubt(follower: CommandRecord, addressee: Addressee, signer: Signer) -> str | None:
    """Why a command that waited cannot be trusted to be ours; None if it can."""
    try:
        signer.check(follower, addressee)
    except UnsignedError as error:
        return error.code
    return None


def _is_held_back(addressee: Addressee) -> bool:
    """Whether people gave the run a policy under which nothing is done without them."""
    return addressee.policy not in (None, PolicyMode.AUTO)


async def _objection(
    connection: AsyncConnection,
    follower: CommandRecord,
    ended: CommandRecord,
    addressee: Addressee,
) -> str | None:
    """Why a command that waited for another must not be sent any more; None if it may."""
    if _is_held_back(addressee):
        return f"the run's policy is {addressee.policy} now"
    if follower.alert_id == ended.alert_id:
        if ended.detail.get("reason") == ALREADY_ROLLED_BACK:
            return ALREADY_ROLLED_BACK
        is_applied = ended.state is CommandState.APPLIED
        return None if is_applied else f"the command before it was {ended.state}"
    alert = await find_alert(connection, follower.alert_id) if follower.alert_id else None
    if alert is not None and not alert.state.is_open:
        return f"its alert is {alert.state}"
    commands = await queries.list_commands(connection, follower.run_id)
    if follower.segment is not None and is_undone(commands, follower.attempt, follower.segment):
        return ALREADY_ROLLED_BACK
    return None


async def _audit(
    connection: AsyncConnection,
    record: CommandRecord,
    addressee: Addressee,
    deed: str,
    actor: str,
    at: float,
) -> None:
    await append_entry(
        connection,
        AuditEntry(
            at=at,
            actor=actor,
            deed=deed,
            subject=record.id,
            project=addressee.project,
            about_run=record.run_id,
            detail={
                "action": msgspec.to_builtins(record.action),
                "reason": record.reason,
                "alert_id": record.alert_id,
                "is_signed": record.signature is not None,
            },
        ),
    )
