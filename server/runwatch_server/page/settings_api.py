"""`/settings`: keys, receivers, and who did what; a newcomer's own key at least."""

from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch.vocabulary import RunId
from runwatch_server.audit.queries import list_deeds
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.notify.receivers_api import view_of
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.runs.queries import find_runs
from runwatch_server.services import CurrentServices

router: Final = APIRouter(include_in_schema=False)

_DEEDS_SHOWN: Final = 100


@router.get("/settings", dependencies=[require(KeyScope.READ)])
async def show_settings(
    request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    is_admin = principal.allows(KeyScope.ADMIN)
    keys = await services.keys.list_keys() if is_admin else []
    everyones = is_admin and principal.project is None
    return render(
        request,
        "settings.html",
        keys=[key for key in reversed(keys) if principal.project in (None, key.project)],
        now=services.clock.wall(),
        receivers=view_of(services.receivers) if everyones else None,
        limits=services.settings.policy_limits,
        policy=services.settings.policy,
        names=await names_of_keys(services),
    )


@router.get("/settings/audit", dependencies=[require(KeyScope.ADMIN)])
async def show_audit(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    before: int | None = None,
) -> Response:
    """What people and the policy did, newest first."""
    async with services.database.read() as connection:
        deeds = await list_deeds(
            connection, project=principal.project, before=before, limit=_DEEDS_SHOWN
        )
        about = {RunId(deed.about_run) for deed in deeds if deed.about_run}
        runs = await find_runs(connection, about)
    return render(
        request,
        "audit.html",
        deeds=deeds,
        runs={run.id: run.name for run in runs},
        older=deeds[-1].number if len(deeds) == _DEEDS_SHOWN else None,
        names=await names_of_keys(services),
    )
