"""`/retention`: how long what is kept, by whom it is said, and what goes next."""

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
from runwatch_server.http import documented, json_body, json_response
from runwatch_server.retention.ages import Ages
from runwatch_server.retention.service import DueRun, Standing
from runwatch_server.runs.access import VisibleRunId
from runwatch_server.services import CurrentServices

router: Final = APIRouter(prefix="/api/v1", tags=["retention"])

_MOST_DAYS: Final = 1e6


class ProjectAges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    project: str
    """Whose runs it is about."""
    ages: Ages
    """Nothing but nulls: as the service has it."""


class RetentionView(msgspec.Struct, frozen=True):
    service: Ages
    """Of all of which nothing else is said."""
    projects: list[ProjectAges]


class RunRetentionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is null stays as it is."""

    pinned: bool | None = None
    """Nothing of the run goes by its age while it is."""
    ages: Ages | None = None
    """All of them, in the place of those before. Wants the scope admin: a short age removes what a
    removal of the run would."""


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
    """Steps, of each kind and rank."""


class DueView(msgspec.Struct, frozen=True):
    runs: list[DueRunView]
    """Of which the next round removes something; no more than `limit`."""


@router.get(
    "/retention",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=RetentionView),
)
async def get_retention(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """How long what is kept, by the service's settings and by projects."""
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
    """Says how long one project's runs keep what; nothing but nulls takes it back."""
    principal.check_project(wanted.project)
    if not is_name(wanted.project):
        raise UnprocessableError(
            "invalid_request", "project: found no name that a project can have"
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
    """What the next round of maintenance removes, without removing it."""
    found = await services.retention.list_due(project=principal.project, limit=limit)
    return json_response(DueView([_due_view(one) for one in found]))


@router.get(
    "/runs/{run_id}/retention",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=RunRetentionView),
)
async def get_run_retention(services: CurrentServices, run_id: VisibleRunId) -> Response:
    """How long a run keeps what, and whether it is pinned."""
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
    """Pins a run, or with the scope admin says how long it keeps what."""
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
