"""`/fleet`: the overview of runs, the loss curves of some, and a stream of changes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from runwatch.vocabulary import RunId, RunState
from runwatch_server.auth.guard import CurrentPrincipal, require, require_to_open
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.fleet.pulse import Pulse, visible_runs
from runwatch_server.fleet.queries import count_fleet, fleet_marks, list_fleet
from runwatch_server.fleet.records import FleetFilter, FleetRow, Group, Order
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/api/v1/fleet", tags=["runs"])

_LOOK_S: Final = 2.0
_KEEP_ALIVE_S: Final = 15.0
MAX_PULSES: Final = 100


class FleetRowView(msgspec.Struct, frozen=True):
    id: RunId
    name: str
    project: str
    run_group: str | None
    """Group of runs that repeat one another (`group` when a run is opened)."""
    owner: str | None
    host: str | None
    state: RunState
    created_at: datetime
    ended_at: datetime | None
    current_attempt: int
    last_step: int | None
    last_step_at: datetime | None
    num_critical: int
    num_warning: int
    num_info: int
    firing_since: datetime | None
    num_critical_left: int
    """Critical alerts that were open when the run ended, or settled worse than before, and that
    nobody has acknowledged."""
    num_warning_left: int
    """Warnings of that kind."""


class FleetView(msgspec.Struct, frozen=True):
    runs: list[FleetRowView]
    counts: dict[str, int]
    """Number of runs by state and by group of states, whatever `group` and `state` are."""


class PulseList(msgspec.Struct, frozen=True):
    pulses: list[Pulse]


@router.get("", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=FleetView))
async def get_fleet(
    services: CurrentServices,
    principal: CurrentPrincipal,
    project: str | None = None,
    group: Group = Group.ALL,
    run_group: Annotated[str | None, Query(max_length=256)] = None,
    state: RunState | None = None,
    search: Annotated[str, Query(max_length=256)] = "",
    order: Order = Order.TROUBLE,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Runs with the number of alerts firing on each, those in trouble first."""
    if project is not None:
        principal.check_project(project)
    wanted = FleetFilter(
        project=project or principal.project,
        group=group,
        run_group=run_group or None,
        state=state,
        search=search,
        order=order,
    )
    async with services.database.read() as connection:
        rows = await list_fleet(connection, wanted, limit=limit, offset=offset)
        counts = await count_fleet(connection, wanted)
    by_group = {
        Group.ALL: counts.num_all,
        Group.TROUBLE: counts.num_trouble,
        Group.LIVE: counts.num_live,
        Group.ENDED: counts.num_ended,
    }
    told = {str(name): count for name, count in (*counts.by_state.items(), *by_group.items())}
    return json_response(FleetView([_view(row) for row in rows], told))


@router.get(
    "/pulse", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=PulseList)
)
async def get_pulses(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: Annotated[list[str], Query(min_length=1, max_length=MAX_PULSES)],
) -> Response:
    """The loss of some runs as small curves, with their newest values."""
    found = await visible_runs(services.database, [RunId(one) for one in run_id], principal.project)
    return json_response(PulseList(await services.pulses.read(found)))


@router.get(
    "/stream",
    dependencies=[require_to_open(KeyScope.READ)],
    openapi_extra=documented(texts=["text/event-stream"]),
)
async def stream_fleet(
    request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> StreamingResponse:
    """Server-sent events of the type `fleet`, each with the ids of the runs whose state, step or
    alerts have changed. Changes are looked for every two seconds."""
    return services.event_streams.respond(principal, changes(request, services, principal))


async def changes(
    request: Request, services: Services, principal: Principal
) -> AsyncIterator[bytes]:
    """Events as they are sent, until the reader has gone or the service stops."""
    project = principal.project
    before = await _marks(services, project)
    yield b"retry: 3000\n: here begins the stream\n\n"
    silent_s = 0.0
    while await services.event_streams.goes_on(request, principal):
        waiting = services.announcer.waiter()
        if await services.announcer.wait(waiting, _LOOK_S):
            await asyncio.sleep(0.2)  # groups changes that come together
        now = await _marks(services, project)
        changed = sorted(
            run_id for run_id in before.keys() | now.keys() if before.get(run_id) != now.get(run_id)
        )
        before = now
        silent_s = 0.0 if changed else silent_s + _LOOK_S
        if changed:
            yield b"event: fleet\ndata: " + msgspec.json.encode({"changed": changed}) + b"\n\n"
        elif silent_s >= _KEEP_ALIVE_S:
            silent_s = 0.0
            yield b": still here\n\n"


async def _marks(services: Services, project: str | None) -> dict[str, tuple[str, int | None, int]]:
    async with services.database.read() as connection:
        return await fleet_marks(connection, project)


def _view(row: FleetRow) -> FleetRowView:
    return FleetRowView(
        id=row.id,
        name=row.name,
        project=row.project,
        run_group=row.run_group,
        owner=row.owner,
        host=row.host,
        state=row.state,
        created_at=rfc3339(row.created_at),
        ended_at=rfc3339_if_any(row.ended_at),
        current_attempt=row.attempt,
        last_step=row.last_step,
        last_step_at=rfc3339_if_any(row.last_step_at),
        num_critical=row.num_critical,
        num_warning=row.num_warning,
        num_info=row.num_info,
        firing_since=rfc3339_if_any(row.firing_since),
        num_critical_left=row.num_critical_left,
        num_warning_left=row.num_warning_left,
    )
