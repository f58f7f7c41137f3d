"""`/runs/{run_id}/commands`, `/commands/{id}`: people order commands, trainers fetch and answer."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response

from runwatch.commands import AnyAction, Receipt
from runwatch.frames import MAX_ATTEMPT, Scalar
from runwatch.messages import CommandsReply
from runwatch.vocabulary import CommandId
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.commands import event_queries, queries, receipt_queries
from runwatch_server.commands.changes import COMMAND_TTL_S
from runwatch_server.commands.records import CommandEvent, CommandRecord, KeptReceipt
from runwatch_server.errors import NotFoundError
from runwatch_server.runs.access import AttemptToken, ProvenAttempt, VisibleRunId
from runwatch_server.runs.checks import check_proven
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import NextToken

router: Final = APIRouter(prefix="/api/v1", tags=["commands"])


class CommandOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: AnyAction
    """What the trainer is to do; its `kind` says which fields it has."""
    reason: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Recorded in the audit."""
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = COMMAND_TTL_S
    """Seconds after which the command expires and must not be applied any more."""


class CommandView(msgspec.Struct, frozen=True):
    id: str
    run_id: str
    attempt: int
    action: AnyAction
    state: str
    reason: str
    requested_by: str
    automatic: bool
    alert_id: str | None
    after_id: str | None
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    ended_step: int | None
    detail: dict[str, Scalar]


class CommandEventView(msgspec.Struct, frozen=True):
    kind: str
    at: datetime
    actor: str
    rank: int | None
    detail: dict[str, object]


class ReceiptView(msgspec.Struct, frozen=True):
    """A rank's newest answer; the command is applied once every rank has applied it."""

    rank: int
    state: str
    step: int
    at: datetime
    detail: dict[str, Scalar]


class CommandWithEvents(CommandView, frozen=True):
    events: list[CommandEventView] = []
    receipts: list[ReceiptView] = []


class CommandList(msgspec.Struct, frozen=True):
    commands: list[CommandView]
    next_token: str | None = None


@router.post(
    "/runs/{run_id}/commands",
    status_code=201,
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(CommandOrder, CommandView, 201, refuses=[409]),
)
async def order_command(
    run_id: VisibleRunId,
    services: CurrentServices,
    principal: CurrentPrincipal,
    wanted: Annotated[CommandOrder, Depends(json_body(CommandOrder))],
    idempotency_key: Annotated[str | None, Header(max_length=256)] = None,
) -> Response:
    """Order a command for a run. With an Idempotency-Key, repeated requests give one command."""
    record = await services.commands.order(
        run_id,
        wanted.action,
        actor=principal.actor,
        reason=wanted.reason,
        ttl_s=wanted.ttl_s,
        idempotency_key=idempotency_key,
    )
    return json_response(view_of(record), 201)


@router.get(
    "/runs/{run_id}/commands",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=CommandList),
)
async def list_commands(
    run_id: VisibleRunId,
    services: CurrentServices,
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """The commands of a run, newest first."""
    async with services.database.read() as connection:
        found = await queries.list_commands(
            connection, run_id, before_id=next_token, limit=limit + 1
        )
    shown, token = answer_of(found, limit, lambda record: record.id, view_of)
    return json_response(CommandList(shown, token))


@router.get(
    "/runs/{run_id}/commands/next",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(answer=CommandsReply),
)
async def next_commands(
    run_id: VisibleRunId,
    services: CurrentServices,
    proven: ProvenAttempt,
    attempt: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)],
    rank: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)] = 0,
    wait_s: Annotated[float, Query(ge=0, le=3600)] = 0.0,
) -> Response:
    """The commands that a rank must carry out now (long poll: waits up to `wait_s`, at most 30 s,
    for the first)."""
    check_proven(attempt, proven)
    return json_response(CommandsReply(await services.delivery.next(run_id, attempt, rank, wait_s)))


@router.get(
    "/commands/{command_id}",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=CommandWithEvents),
)
async def get_command(
    command_id: CommandId, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """A command, each rank's answer and everything that happened to it."""
    record = await _check_command(services, principal, command_id)
    async with services.database.read() as connection:
        events = await event_queries.list_events(connection, record.run_id, command_id)
        receipts = await receipt_queries.list_receipts(connection, record.run_id, command_id)
    view = CommandWithEvents(
        **msgspec.structs.asdict(view_of(record)),
        events=[_event_view(event) for event in events],
        receipts=[_receipt_view(receipt) for receipt in receipts],
    )
    return json_response(view)


@router.post(
    "/commands/{command_id}/approve",
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(answer=CommandView, refuses=[409]),
)
async def approve_command(
    command_id: CommandId, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """Approve a proposed command, so that it goes to the trainer."""
    await _check_command(services, principal, command_id)
    record = await services.commands.approve(command_id, actor=principal.actor)
    return json_response(view_of(record))


@router.post(
    "/commands/{command_id}/cancel",
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(answer=CommandView, refuses=[409]),
)
async def cancel_command(
    command_id: CommandId, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """Cancel a command that no rank has accepted yet."""
    await _check_command(services, principal, command_id)
    record = await services.commands.cancel(command_id, actor=principal.actor)
    return json_response(view_of(record))


@router.post(
    "/commands/{command_id}/receipt",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(Receipt, CommandView, refuses=[409]),
)
async def receive_receipt(
    command_id: CommandId,
    services: CurrentServices,
    principal: CurrentPrincipal,
    receipt: Annotated[Receipt, Depends(json_body(Receipt))],
    token: AttemptToken = "",
) -> Response:
    """Receive a rank's answer to a command."""
    ordered = await _check_command(services, principal, command_id)
    check_proven(receipt.attempt, await services.runs.proven_attempt(ordered.run_id, token))
    record = await services.commands.receive(command_id, receipt, by=principal.actor)
    return json_response(view_of(record))


def view_of(record: CommandRecord) -> CommandView:
    return CommandView(
        id=record.id,
        run_id=record.run_id,
        attempt=record.attempt,
        action=record.action,
        state=record.state,
        reason=record.reason,
        requested_by=record.requested_by,
        automatic=record.automatic,
        alert_id=record.alert_id,
        after_id=record.after_id,
        created_at=rfc3339(record.created_at),
        expires_at=rfc3339(record.expires_at),
        ended_at=rfc3339_if_any(record.ended_at),
        ended_step=record.ended_step,
        detail=dict(record.detail),
    )


def _event_view(event: CommandEvent) -> CommandEventView:
    return CommandEventView(
        kind=event.kind,
        at=rfc3339(event.at),
        actor=event.actor,
        rank=event.rank,
        detail=dict(event.detail),
    )


def _receipt_view(receipt: KeptReceipt) -> ReceiptView:
    return ReceiptView(
        rank=receipt.rank,
        state=receipt.state,
        step=receipt.step,
        at=rfc3339(receipt.at),
        detail=dict(receipt.detail),
    )


async def _check_command(
    services: Services, principal: Principal, command_id: CommandId
) -> CommandRecord:
    async with services.database.read() as connection:
        record = await queries.find_command(connection, command_id)
    if record is None:
        raise NotFoundError("command_not_found", f"There is no command {command_id!r}.")
    await services.runs.check_access(record.run_id, principal)
    return record
