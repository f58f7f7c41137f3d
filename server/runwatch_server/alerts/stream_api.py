"""`/stream`: server-sent events about a run, its alerts and commands, as they happen."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from runwatch.vocabulary import RunId
from runwatch_server.alerts import event_queries as alert_event_queries
from runwatch_server.alerts import records as alert_records
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.clock import rfc3339
from runwatch_server.commands import event_queries as command_event_queries
from runwatch_server.commands import records as command_records
from runwatch_server.errors import UnprocessableError
from runwatch_server.runs.queries import find_run
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented

router: Final = APIRouter(prefix="/api/v1", tags=["alerts"])

_KEEP_ALIVE_S: Final = 15.0
_LOOK_S: Final = 1.0
"""How often, in seconds, a run is checked for progress, which is not announced."""
_CHUNK: Final = 200
_CURSOR: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
"""Limited to numbers that a database can hold."""


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """A reader's position in the stream. Written as an event's id: `<alert event>-<command
    event>`."""

    alert_event: int
    command_event: int

    def __str__(self) -> str:
        return f"{self.alert_event}-{self.command_event}"

    @classmethod
    def parse(cls, text: str) -> "StreamCursor":
        """Raises UnprocessableError."""
        if _CURSOR.fullmatch(text) is None:
            raise UnprocessableError("invalid_event_id", f"Last-Event-ID: found {text[:80]!r}")
        alert_event, _, command_event = text.partition("-")
        return cls(int(alert_event), int(command_event))


@router.get(
    "/stream",
    dependencies=[require_to_open(KeyScope.READ)],
    openapi_extra=documented(texts=["text/event-stream"], refuses=[404]),
)
async def stream(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: str,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Server-sent events of a run, from now on or after the one in Last-Event-ID, without gaps. The
    stream ends if the run is deleted.

    `alert` and `command` say what happened to one; `progress`, which has no id and comes at most
    once a second, gives the run's state and last step when they have changed.
    """
    run = await services.runs.find(RunId(run_id), principal)
    cursor = (
        await _newest(services, run.id)
        if last_event_id is None
        else StreamCursor.parse(last_event_id)
    )
    events = _events(request, services, principal, run.id, cursor)
    return services.event_streams.respond(principal, events)


async def _newest(services: Services, run_id: RunId) -> StreamCursor:
    async with services.database.read() as connection:
        return StreamCursor(
            await alert_event_queries.last_event_number(connection, run_id),
            await command_event_queries.last_event_number(connection, run_id),
        )


async def _events(
    request: Request, services: Services, principal: Principal, run_id: RunId, cursor: StreamCursor
) -> AsyncIterator[bytes]:
    yield b": here begins the stream\n\n"
    progress = await _progress(services, run_id)
    silent_s = 0.0
    while await services.event_streams.goes_on(request, principal):
        waiting = services.announcer.waiter()
        texts, cursor = await _read(services, run_id, cursor)
        before, progress = progress, await _progress(services, run_id)
        if progress is None:
            return
        if progress != before:
            texts.append(b"event: progress\ndata: " + msgspec.json.encode(progress) + b"\n\n")
        for text in texts:
            yield text
        if texts:
            silent_s = 0.0
        elif not await services.announcer.wait(waiting, _LOOK_S):
            silent_s += _LOOK_S
        if silent_s >= _KEEP_ALIVE_S:
            silent_s = 0.0
            yield b": still here\n\n"


async def _progress(services: Services, run_id: RunId) -> dict[str, object] | None:
    """State and last step as an event; None if the run was removed."""
    async with services.database.read() as connection:
        run = await find_run(connection, run_id)
    if run is None:
        return None
    return {"state": run.state, "last_step": run.last_step, "attempt": run.current_attempt}


async def _read(
    services: Services, run_id: RunId, cursor: StreamCursor
) -> tuple[list[bytes], StreamCursor]:
    """The events after a cursor, and the cursor of the last of them."""
    texts: list[bytes] = []
    async with services.database.read() as connection:
        for alert in await alert_event_queries.list_events_after(
            connection, cursor.alert_event, run_id=run_id, limit=_CHUNK
        ):
            cursor = StreamCursor(alert.number, cursor.command_event)
            told: dict[str, object] = {"alert_id": alert.alert_id, "step": alert.step}
            texts.append(_text("alert", cursor, alert, told))
        for command in await command_event_queries.list_events_after(
            connection, cursor.command_event, run_id=run_id, limit=_CHUNK
        ):
            cursor = StreamCursor(cursor.alert_event, command.number)
            told = {"command_id": command.command_id, "rank": command.rank}
            texts.append(_text("command", cursor, command, told))
    return texts, cursor


def _text(
    topic: str,
    cursor: StreamCursor,
    event: alert_records.AlertEvent | command_records.CommandEvent,
    facts: dict[str, object],
) -> bytes:
    told = facts | {
        "kind": event.kind,
        "at": rfc3339(event.at),
        "actor": event.actor,
        "detail": dict(event.detail),
    }
    return f"id: {cursor}\nevent: {topic}\ndata: {msgspec.json.encode(told).decode()}\n\n".encode()
