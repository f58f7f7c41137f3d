"""Receives layouts and frames; returns a run's timeline and checkpoints."""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.codec import CONTENT_TYPE, MAX_BODY_BYTES
from runwatch.json_frames import JsonFrame
from runwatch.messages import FrameReply
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339
from runwatch_server.errors import UnprocessableError, UnsupportedTypeError
from runwatch_server.runs.access import ProvenAttempt, VisibleRunId
from runwatch_server.services import CurrentServices
from runwatch_server.telemetry.events import RecordedEvent, list_events
from runwatch_server.web.bodies import documented, json_response
from runwatch_server.web.parameters import NextToken

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["telemetry"])

_HASH: Final = re.compile(r"[0-9a-f]{64}")


async def _filling_project(
    run_id: RunId, services: CurrentServices, principal: CurrentPrincipal
) -> str:
    project = await services.runs.check_access(run_id, principal)
    services.quota.check(project)
    return project


FillingProject = Annotated[str, Depends(_filling_project)]
"""The project of the run in the path. 404 and 403 as for VisibleRunId, and 503 if the project has
stored as much as it may."""


class LayoutStored(msgspec.Struct, frozen=True):
    hash: str


class EventView(msgspec.Struct, frozen=True):
    id: str
    attempt: int
    rank: int
    segment: int
    step: int | None
    source: str
    kind: str
    at: datetime
    detail: dict[str, Any]


class Timeline(msgspec.Struct, frozen=True):
    events: list[EventView]
    next_token: str | None
    """Pass it as `next_token` to get the following events, including those yet to happen. So it
    does not become null at the end of the list, which is where `events` is empty."""


class CheckpointView(msgspec.Struct, frozen=True):
    attempt: int
    segment: int
    step: int | None
    """The checkpoint holds the state after this step."""
    at: datetime
    path: Any
    good: bool
    """Whether enough healthy steps passed since it was taken and its tensors were all finite."""


class CheckpointList(msgspec.Struct, frozen=True):
    checkpoints: list[CheckpointView]
    next_token: str | None = None
    """Pass it as `next_token` to get the next page; null: this is the last one."""


@router.put(
    "/layouts/{layout_hash}",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(dict[str, Any], LayoutStored, also=201),
    max_body_size=MAX_BODY_BYTES,
)
async def put_layout(
    request: Request,
    services: CurrentServices,
    run_id: RunId,
    project: FillingProject,
    _: ProvenAttempt,
    layout_hash: str,
) -> Response:
    """Register the columns of frames: `{"layers": [{"name": ...}], "stats": [...]}`."""
    if not _HASH.fullmatch(layout_hash):
        raise UnprocessableError(
            "wrong_hash", f"hash: found {layout_hash[:80]!r}, wanted 64 hexadecimal digits"
        )
    body = await request.body()
    is_new = await services.layouts.put(run_id, layout_hash, body)
    services.quota.note(project, len(body) if is_new else 0)
    return json_response(LayoutStored(layout_hash), 201 if is_new else 200)


def _frame_docs() -> dict[str, Any]:
    docs = documented(JsonFrame, FrameReply, refuses=[400, 409, 415])
    docs["requestBody"]["content"][CONTENT_TYPE] = {
        "schema": {"type": "string", "format": "binary"}
    }
    return docs


@router.post(
    "/frames",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=_frame_docs(),
    max_body_size=MAX_BODY_BYTES,
)
async def put_frame(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: RunId,
    project: FillingProject,
    proven: ProvenAttempt,
    late: bool = False,
) -> Response:
    """Store a frame. The answer comes once it is on disk; sending the same frame again succeeds.

    JSON has the form of `runwatch.json_frames`: lists hold one value per step, non-finite values
    are "NaN", "+Inf", "-Inf", and null means not recorded. `late=true` is for the remaining frames
    of an attempt that has ended: they are stored and judged, but lead to no commands.
    """
    content_type = request.headers.get("Content-Type", "").split(";")[0].strip().lower()
    body, sender = await request.body(), principal.key_id
    if content_type == CONTENT_TYPE:
        receipted = await services.ingest.put_frame(
            run_id, body, proven=proven, late=late, sender=sender
        )
    elif content_type == "application/json":
        receipted = await services.ingest.put_json_frame(
            run_id, body, proven=proven, late=late, sender=sender
        )
    else:
        raise UnsupportedTypeError(
            "unsupported_type",
            f"Content-Type: found {content_type!r}, wanted {CONTENT_TYPE} or application/json",
        )
    num_bytes = 0 if receipted.duplicate else len(body) + receipted.event_bytes
    services.quota.note(project, num_bytes)
    commands = (
        () if late else await services.delivery.pending(run_id, receipted.attempt, receipted.rank)
    )
    return json_response(FrameReply(receipted.acked, receipted.next, receipted.duplicate, commands))


@router.get(
    "/timeline",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=Timeline),
)
async def get_timeline(
    services: CurrentServices,
    run_id: VisibleRunId,
    kind: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """What happened to the run, in the order in which the service heard of it: at most `limit`
    events, or fewer if they are large."""
    async with services.database.read() as connection:
        found = await list_events(
            connection, run_id, kinds=tuple(kind), after=next_token, limit=limit
        )
    token = found[-1].id if found else next_token
    return json_response(Timeline([_event_view(event) for event in found], token))


@router.get(
    "/checkpoints",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=CheckpointList),
)
async def get_checkpoints(
    services: CurrentServices,
    run_id: VisibleRunId,
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """The checkpoints that the trainer has written, oldest first."""
    async with services.database.read() as connection:
        read = partial(list_events, connection, run_id, kinds=("checkpoint",), rank=0)
        found = await read(after=next_token, limit=limit)
        good = await _good_among(connection, run_id, found)
        has_more = bool(found and await read(after=found[-1].id, limit=1))
    shown = [
        CheckpointView(
            attempt=event.attempt,
            segment=event.segment,
            step=_state_of(event),
            at=rfc3339(event.at),
            path=event.detail.get("path"),
            good=_checkpoint_key(event) in good,
        )
        for event in found
    ]
    return json_response(CheckpointList(shown, found[-1].id if has_more else None))


async def _good_among(
    connection: AsyncConnection, run_id: RunId, checkpoints: Sequence[RecordedEvent]
) -> set[tuple[int, str]]:
    """The keys of those that were found good later."""
    keys = {_checkpoint_key(event) for event in checkpoints}
    good: set[tuple[int, str]] = set()
    found = checkpoints[:1]
    while found:
        found = await list_events(
            connection, run_id, kinds=("checkpoint_good",), after=found[-1].id
        )
        good |= keys.intersection(map(_checkpoint_key, found))
    return good


def _state_of(event: RecordedEvent) -> int | None:
    """The step of a checkpoint's state; it is reported some steps later, once it is written."""
    of_step = event.detail.get("of_step")
    return of_step if isinstance(of_step, int) else event.step


def _checkpoint_key(event: RecordedEvent) -> tuple[int, str]:
    """Identifies a checkpoint when it is found good later: by its path, or else by its step."""
    return event.attempt, repr(event.detail.get("path", event.step))  # several files are a list


def _event_view(event: RecordedEvent) -> EventView:
    return EventView(
        id=event.id,
        attempt=event.attempt,
        rank=event.rank,
        segment=event.segment,
        step=event.step,
        source=event.source,
        kind=event.kind,
        at=rfc3339(event.at),
        detail=event.detail,
    )
