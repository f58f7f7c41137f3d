"""`/settings`: keys, receivers, retention and the audit log; a user with few rights sees at least
their own key."""

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch.vocabulary import RunId
from runwatch_server.audit.queries import list_entries
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.notify.receivers_api import view_of
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.retention.ages import Ages
from runwatch_server.runs.queries import find_runs
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.pagination import part_of

router: Final = APIRouter(include_in_schema=False)

_ENTRIES_SHOWN: Final = 100
_DUE_SHOWN: Final = 50


@router.get("/settings", dependencies=[require_to_open(KeyScope.READ)])
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
        service_ages=services.retention.service_ages,
        projects_ages=await _projects_ages(services, principal),
        names=await names_of_keys(services),
    )


@router.get("/settings/due", dependencies=[require_to_open(KeyScope.READ)])
async def show_due(
    request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """What the next round of maintenance removes, as a part that the page loads."""
    due = await services.retention.list_due(project=principal.project, limit=_DUE_SHOWN)
    return render(request, "due.html", due=due, is_all=len(due) < _DUE_SHOWN)


async def _projects_ages(services: Services, principal: Principal) -> Mapping[str, Ages]:
    """The retention ages of the projects that the caller may see."""
    said = await services.retention.projects()
    return {name: ages for name, ages in said.items() if principal.project in (None, name)}


@router.get("/settings/audit", dependencies=[require_to_open(KeyScope.ADMIN)])
async def show_audit(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    before: int | None = None,
) -> Response:
    """What people and the policy did, newest first."""
    async with services.database.read() as connection:
        found = await list_entries(
            connection, project=principal.project, before=before, limit=_ENTRIES_SHOWN + 1
        )
        entries, older = part_of(found, _ENTRIES_SHOWN, lambda entry: entry.number)
        about = {RunId(entry.about_run) for entry in entries if entry.about_run}
        runs = await find_runs(connection, about)
    return render(
        request,
        "audit.html",
        entries=entries,
        runs={run.id: run.name for run in runs},
        older=older,
        names=await names_of_keys(services),
    )
