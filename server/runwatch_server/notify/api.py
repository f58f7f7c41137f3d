"""`/notifications` and `/silences`: messages to receivers, and silences that hold them back."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.errors import NotFoundError, UnprocessableError
from runwatch_server.notify import queries, silenced_alerts, silences
from runwatch_server.notify.records import Delivery, DeliveryState
from runwatch_server.notify.recurrence import Recurrence
from runwatch_server.notify.silences import Matcher, Silence
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import NextNumber, NextToken

router: Final = APIRouter(prefix="/api/v1", tags=["notifications"])

MAX_SILENCE_S: Final = 366 * 86400.0
MAX_RECURRING_S: Final = 10 * MAX_SILENCE_S
"""Longest span of a recurring silence, which somebody should review from time to time."""


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    receiver: str
    kind: str
    state: str
    run_id: str
    alert_id: str
    project: str
    dedup_key: str
    created_at: datetime
    due_at: datetime | None
    """When the message is tried next; null if it is not waiting."""
    delivered_at: datetime | None
    attempts: int
    """Number of failed attempts in a row."""
    error: str | None


class NotificationList(msgspec.Struct, frozen=True):
    notifications: list[DeliveryView]
    next_token: str | None = None


class SilenceGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    matchers: Annotated[tuple[Matcher, ...], msgspec.Meta(min_length=1, max_length=16)]
    """All of them must match. Labels are alertname, rule, severity, watchdog, project, run_id, run,
    layer_group, rank and those of the rule."""
    ends_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """Required, except for a recurring silence, which lasts ten years by default."""
    starts_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """When it begins; null: now."""
    recurs: Recurrence | None = None
    """A maintenance window that recurs between `starts_at` and `ends_at`."""
    comment: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    """The reason, which the next person on call will ask for."""


class SilenceView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    project: str | None
    """The project whose alerts it holds back; null: every project."""
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime
    author: str
    comment: str
    created_at: datetime
    active: bool
    recurs: Recurrence | None
    next_at: datetime | None
    """When the next window of a recurring silence begins; null for other silences."""


class NewSilenceView(SilenceView, frozen=True, kw_only=True):
    num_matching: int
    """Number of open alerts that it matches now; 0 may mean that a value is mistyped."""


class SilenceList(msgspec.Struct, frozen=True):
    silences: list[SilenceView]
    next_token: str | None = None


@router.get(
    "/notifications",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=NotificationList),
)
async def list_notifications(
    services: CurrentServices,
    principal: CurrentPrincipal,
    state: DeliveryState | None = None,
    next_token: NextNumber = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Messages to receivers, sent or waiting, newest first. Receivers are shown by name only."""
    async with services.database.read() as connection:
        found = await queries.list_deliveries(
            connection, project=principal.project, state=state, before=next_token, limit=limit + 1
        )
    shown, token = answer_of(found, limit, lambda one: one.number, _delivery_view)
    return json_response(NotificationList(shown, token))


@router.get(
    "/silences",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=SilenceList),
)
async def list_silences(
    services: CurrentServices,
    principal: CurrentPrincipal,
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Silences that are in force or begin later, newest first."""
    now = services.clock.wall()
    async with services.database.read() as connection:
        found = await silences.list_silences(
            connection,
            ending_after=now,
            projects=None if principal.project is None else [principal.project],
            before_id=next_token,
            limit=limit + 1,
        )
    shown, token = answer_of(
        found, limit, lambda silence: silence.id, lambda silence: _silence_view(silence, now)
    )
    return json_response(SilenceList(shown, token))


@router.post(
    "/silences",
    status_code=201,
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(SilenceGiven, NewSilenceView, status=201),
)
async def create_silence(
    services: CurrentServices,
    principal: CurrentPrincipal,
    given: Annotated[SilenceGiven, Depends(json_body(SilenceGiven))],
) -> Response:
    """Create a silence: it holds back the messages of matching alerts, but not the alerts. A label
    that no alert and no rule has is refused."""
    now = services.clock.wall()
    starts_at = now if given.starts_at is None else given.starts_at.timestamp()
    silence = Silence(
        id=services.clock.new_ulid(),
        project=principal.project or "",
        matchers=given.matchers,
        starts_at=starts_at,
        ends_at=_end_of(given, starts_at),
        recurs=given.recurs,
        author=principal.actor,
        comment=given.comment,
        created_at=now,
    )
    _check_span(silence, given, now)
    watchdog = services.receivers.name
    of_rules = await services.rules.label_names(principal.project)
    async with services.database.read() as connection:
        cases = await silenced_alerts.list_open(connection, now)
    silenced_alerts.check_labels(
        silence.matchers, of_rules=of_rules, cases=cases, watchdog=watchdog
    )

    async def work(connection: AsyncConnection) -> None:
        await silences.insert_silence(connection, silence)
        await append_entry(
            connection, _audit_entry(silence, "silence_created", silence.author, now)
        )

    await services.database.write(work)
    num_matching = silenced_alerts.count_matching(silence, cases, watchdog)
    shown = msgspec.structs.asdict(_silence_view(silence, now))
    return json_response(NewSilenceView(**shown, num_matching=num_matching), 201)


@router.delete(
    "/silences/{silence_id}",
    status_code=204,
    dependencies=[require(KeyScope.CONTROL)],
)
async def delete_silence(
    silence_id: str, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """End a silence now; receivers are then told of the alerts that still fire."""
    now = services.clock.wall()

    async def work(connection: AsyncConnection) -> None:
        silence = await silences.find_silence(connection, silence_id)
        if silence is None:
            raise NotFoundError("silence_not_found", f"There is no silence {silence_id!r}.")
        principal.check_project(silence.project)
        if silence.ends_at > now:
            await silences.end_silence(connection, silence, at=now)
            entry = _audit_entry(silence, "silence_ended", principal.actor, now)
            await append_entry(connection, entry)

    await services.database.write(work)
    return Response(status_code=204)


def _end_of(given: SilenceGiven, starts_at: float) -> float:
    if given.ends_at is not None:
        return given.ends_at.timestamp()
    if given.recurs is None:
        raise UnprocessableError("invalid_silence", "ends_at: found none, wanted a time to come.")
    return starts_at + MAX_RECURRING_S


def _check_span(silence: Silence, given: SilenceGiven, now: float) -> None:
    most_s, words = MAX_SILENCE_S, "a year"
    if silence.recurs is not None:
        most_s, words = MAX_RECURRING_S, "ten years"
    if not silence.starts_at > now - most_s:
        raise _out_of_span("starts_at", given.starts_at, f"a time to come, or at most {words} ago")
    if silence.recurs is not None:
        if not silence.starts_at <= now + MAX_SILENCE_S:
            wanted = "a time within a year, of one that recurs"
            raise _out_of_span("starts_at", given.starts_at, wanted)
        silence.recurs.check(max(silence.starts_at, now))
    if not max(silence.starts_at, now) < silence.ends_at <= silence.starts_at + most_s:
        wanted = f"a time to come, after starts_at by at most {words}"
        raise _out_of_span("ends_at", given.ends_at, wanted)


def _out_of_span(name: str, found: datetime | None, wanted: str) -> UnprocessableError:
    """Shows the time as it was given, since in UTC it may be outside the calendar."""
    said = "none" if found is None else found.isoformat()
    return UnprocessableError("invalid_silence", f"{name}: found {said}, wanted {wanted}")


def _audit_entry(silence: Silence, deed: str, actor: str, now: float) -> AuditEntry:
    return AuditEntry(
        at=now,
        actor=actor,
        deed=deed,
        subject=silence.id,
        project=silence.project,
        detail={
            "matchers": [msgspec.to_builtins(matcher) for matcher in silence.matchers],
            "starts_at": silence.starts_at,
            "ends_at": silence.ends_at,
            "comment": silence.comment,
            "recurs": msgspec.to_builtins(silence.recurs),
        },
    )


def _silence_view(silence: Silence, now: float) -> SilenceView:
    next_at = silence.next_at(now)
    return SilenceView(
        id=silence.id,
        project=silence.project or None,
        matchers=silence.matchers,
        starts_at=rfc3339(silence.starts_at),
        ends_at=rfc3339(silence.ends_at),
        author=silence.author,
        comment=silence.comment,
        created_at=rfc3339(silence.created_at),
        active=silence.is_in_force(now),
        recurs=silence.recurs,
        next_at=rfc3339_if_any(next_at),
    )


def _delivery_view(one: Delivery) -> DeliveryView:
    waits = one.state is DeliveryState.WAITING
    return DeliveryView(
        number=one.number,
        receiver=one.receiver,
        kind=one.kind.value,
        state=one.state.value,
        run_id=one.run_id,
        alert_id=one.alert_id,
        project=one.project,
        dedup_key=one.dedup_key,
        created_at=rfc3339(one.created_at),
        due_at=rfc3339(one.due_at) if waits else None,
        delivered_at=rfc3339_if_any(one.delivered_at),
        attempts=one.attempts,
        error=one.error,
    )
