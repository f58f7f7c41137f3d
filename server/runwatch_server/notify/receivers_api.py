"""`/receivers`: lists receivers by name, and sends test messages."""

import asyncio
from typing import Final

import msgspec
from fastapi import APIRouter, Response

from runwatch.addresses import place_of
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.errors import ForbiddenError, NotFoundError
from runwatch_server.notify.assembly import sender_to
from runwatch_server.notify.networks import ConnectionGuard
from runwatch_server.notify.receivers import Receiver, Receivers
from runwatch_server.notify.refusals import TOO_LATE
from runwatch_server.notify.sending import ATTEMPT_S, Message, cut_after
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/api/v1/receivers", tags=["notifications"])


class ReceiverView(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver without its address, which holds secrets."""

    name: str
    min_severity: str
    projects: tuple[str, ...]
    """Globs of the projects whose alerts it receives."""
    send_resolved: bool
    repeat_s: float


class ReceiverList(msgspec.Struct, frozen=True, kw_only=True):
    receivers: list[ReceiverView]
    alertmanagers: list[str]
    """Addresses of Alertmanagers, without user and password."""


class TestOutcome(msgspec.Struct, frozen=True):
    delivered: bool
    """Whether the receiver accepted the message; its answer is not shown."""
    error: str | None = None
    """Why it did not, as far as that is known."""


@router.get(
    "", dependencies=[require(KeyScope.ADMIN)], openapi_extra=documented(answer=ReceiverList)
)
async def list_receivers(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """The receivers in the receivers' file. Refused to a key that is bound to a project."""
    _check_unbound(principal)
    return json_response(view_of(services.receivers))


@router.post(
    "/{name}/test",
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=documented(answer=TestOutcome),
)
async def send_test(name: str, services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """Send a test message, which says that it is one."""
    _check_unbound(principal)
    receiver = next((one for one in services.receivers.receivers if one.name == name), None)
    if receiver is None:
        raise NotFoundError("receiver_not_found", f"There is no receiver {name!r}.")
    now = services.clock.wall()
    message = Message(
        title="[test] Runwatch reaches you",
        body=f"{principal.name} asked whether messages arrive here. Nothing is wrong.",
        dedup_key=f"runwatch-test-{name}",
        is_over=True,
    )
    fault = await _try(receiver, message)
    entry = AuditEntry(
        at=now,
        actor=principal.actor,
        deed="receiver_tested",
        subject=name,
        detail={"delivered": not fault},
    )
    await services.database.write(lambda connection: append_entry(connection, entry))
    return json_response(TestOutcome(delivered=not fault, error=fault or None))


def view_of(config: Receivers) -> ReceiverList:
    return ReceiverList(
        receivers=[
            ReceiverView(
                name=one.name,
                min_severity=one.wanted.min_severity.value,
                projects=one.wanted.projects,
                send_resolved=one.send_resolved,
                repeat_s=one.repeat_s,
            )
            for one in config.receivers
        ],
        alertmanagers=[
            place_of(url)
            for url in (() if config.alertmanagers is None else config.alertmanagers.urls)
        ],
    )


async def _try(receiver: Receiver, message: Message) -> str:
    """Why the receiver did not take the message; empty if it did."""
    guard = ConnectionGuard(receiver.allowed)
    try:
        async with cut_after(guard, ATTEMPT_S):
            return await asyncio.to_thread(_send, receiver, message, guard)
    except TimeoutError:
        return TOO_LATE


def _send(receiver: Receiver, message: Message, guard: ConnectionGuard) -> str:
    return sender_to(receiver).send(message, guard)


def _check_unbound(principal: Principal) -> None:
    if principal.project is not None:
        raise ForbiddenError(
            "foreign_project",
            f"The API key is bound to the project {principal.project!r}; receivers are everyone's.",
        )
