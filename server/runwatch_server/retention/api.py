"""`/retention`: how long data is kept, as set at which level, and what is removed next."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from runwatch.messages import is_name
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339_if_any
from runwatch_server.errors import UnprocessableError
from runwatch_server.retention.ages import Ages, Why
from runwatch_server.retention.service import DueRun, HeldFrames, Standing
from runwatch_server.runs.access import VisibleRunId
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_body, json_response

router: Final = APIRouter(prefix="/api/v1", tags=["retention"])

_MOST_DAYS: Final = 1e6


class ProjectAges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    project: str
    """The project whose runs these ages apply to."""
    ages: Ages
    """Days after a run's end; 0: for ever; null: the service's value. Only nulls: the project has
    no ages of its own."""


class RetentionView(msgspec.Struct, frozen=True):
    service: Ages
    """The service's settings, in force where neither project nor run sets anything else."""
    projects: list[ProjectAges]


class RunRetentionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change; what is null stays as it is."""

    pinned: bool | None = None
    """Nothing of a pinned run is removed because of its age."""
    ages: Ages | None = None
    """Replaces all of the run's ages. Requires the scope admin, since a short age can remove as
    much as deleting the run."""


class RunRetentionView(msgspec.Struct, frozen=True):
    in_force: Ages
    pinned: bool
    own: Ages


class AmountView(msgspec.Struct, frozen=True):
    number: int
    num_bytes: int


class DueRunView(msgspec.Struct, frozen=True):
    run_id: RunId
    name: str
    project: str
    ended_at: datetime | None
    frames: AmountView
    rollups: AmountView
    """Tiles of layers' stats."""
    histograms: AmountView
    """Counted in steps, for each kind and rank."""


class HeldView(msgspec.Struct, frozen=True):
    run_id: RunId
    name: str
    project: str
    why: Why
    """`pinned`; `evidence`: around an alert; `not_summed_up`; `lost`: the run was never closed."""
    frames: AmountView
    until: datetime | None
    """When their own age ends; null: never by itself, or it is not known when."""


class DueView(msgspec.Struct, frozen=True):
    runs: list[DueRunView]
    """Runs of which the next round removes something; at most `limit` of them."""
    held: list[HeldView]
    """Frames that are old enough and stay all the same; at most `limit` entries."""


@router.get(
    "/retention",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=RetentionView),
)
async def get_retention(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """How long data is kept, by the service's settings and for each project."""
    said = await services.retention.projects()
    seen = [
        ProjectAges(project, ages)
        for project, ages in said.items()
        if principal.project in (None, project)
    ]
    return json_response(RetentionView(services.retention.service_ages, seen))


@router.patch(
    "/retention",
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=documented(ProjectAges, RetentionView),
)
async def change_project_retention(
    services: CurrentServices,
    principal: CurrentPrincipal,
    wanted: Annotated[ProjectAges, Depends(json_body(ProjectAges))],
) -> Response:
    """Set how long the data of one project's runs is kept; only nulls restores the service's
    values."""
    principal.check_project(wanted.project)
    if not is_name(wanted.project):
        raise UnprocessableError(
            "invalid_request", "project: found a name that no project can have"
        )
    _check(wanted.ages)
    await services.retention.set_project(wanted.project, wanted.ages, by=principal.actor)
    return await get_retention(services, principal)


@router.get(
    "/retention/due",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=DueView),
)
async def get_due(
    services: CurrentServices,
    principal: CurrentPrincipal,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """What the next round of maintenance will remove, and what stays though it is old enough;
    removes nothing itself."""
    found = await services.retention.list_due(project=principal.project, limit=limit)
    held = await services.retention.list_held(project=principal.project, limit=limit)
    return json_response(
        DueView([_due_view(one) for one in found], [_held_view(one) for one in held])
    )


@router.get(
    "/runs/{run_id}/retention",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=RunRetentionView),
)
async def get_run_retention(services: CurrentServices, run_id: VisibleRunId) -> Response:
    """How long a run's data is kept, and whether the run is pinned."""
    return json_response(_standing_view(await services.retention.standing(run_id)))


@router.patch(
    "/runs/{run_id}/retention",
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(RunRetentionChange, RunRetentionView),
)
async def change_run_retention(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: VisibleRunId,
    wanted: Annotated[RunRetentionChange, Depends(json_body(RunRetentionChange))],
) -> Response:
    """Pin or unpin a run; with the scope admin also set how long its data is kept."""
    if wanted.ages is not None:
        principal.check_scope(KeyScope.ADMIN)
        _check(wanted.ages)
    standing = await services.retention.set_run(
        run_id, ages=wanted.ages, pinned=wanted.pinned, by=principal.actor
    )
    return json_response(_standing_view(standing))


def _check(ages: Ages) -> None:
    for name in Ages.__struct_fields__:
        days: float | None = getattr(ages, name)
        if days is not None and not 0 <= days <= _MOST_DAYS:
            raise UnprocessableError(
                "invalid_request", f"{name}: found {days}, wanted 0 (for ever) to {_MOST_DAYS:.0f}"
            )


def _standing_view(standing: Standing) -> RunRetentionView:
    return RunRetentionView(standing.in_force, standing.pinned, standing.own)


def _due_view(due: DueRun) -> DueRunView:
    run = due.run
    return DueRunView(
        run_id=run.run_id,
        name=run.name,
        project=run.project,
        ended_at=rfc3339_if_any(run.ended_at),
        frames=AmountView(due.frames.number, due.frames.num_bytes),
        rollups=AmountView(due.rollups.number, due.rollups.num_bytes),
        histograms=AmountView(due.histograms.number, due.histograms.num_bytes),
    )


def _held_view(held: HeldFrames) -> HeldView:
    run = held.run
    return HeldView(
        run_id=run.run_id,
        name=run.name,
        project=run.project,
        why=held.why,
        frames=AmountView(held.frames.number, held.frames.num_bytes),
        until=rfc3339_if_any(held.until),
    )
