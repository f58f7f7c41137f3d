"""`/`: all runs at a glance, those in trouble first."""

from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from runwatch.vocabulary import RunState
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.fleet.queries import count_fleet, list_fleet, list_groups, list_projects
from runwatch_server.fleet.records import FleetFilter, Group, Order
from runwatch_server.page.rendering import render
from runwatch_server.services import CurrentServices

router: Final = APIRouter(include_in_schema=False)

_A_PAGE: Final = 50


@router.get("/", dependencies=[require_to_open(KeyScope.READ)])
async def show_runs(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    project: str = "",
    group: Group = Group.ALL,
    run_group: Annotated[str, Query(max_length=256)] = "",
    state: RunState | None = None,
    search: Annotated[str, Query(max_length=256)] = "",
    order: Order = Order.TROUBLE,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> Response:
    """The whole page, or only its list for the page's own script (`X-Fragment: fleet`)."""
    if project:
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
        rows = await list_fleet(connection, wanted, limit=_A_PAGE + 1, offset=(page - 1) * _A_PAGE)
        counts = await count_fleet(connection, wanted)
        projects = await list_projects(connection, principal.project)
        run_groups = await list_groups(connection, wanted.project)
    template = "runs_list.html" if request.headers.get("X-Fragment") == "fleet" else "runs.html"
    return render(
        request,
        template,
        rows=rows[:_A_PAGE],
        counts=counts,
        projects=projects,
        run_groups=run_groups,
        wanted=wanted,
        project=project,
        page=page,
        first=(page - 1) * _A_PAGE + 1,
        has_more=len(rows) > _A_PAGE,
        link=Links(
            project=project,
            group=group,
            run_group=run_group,
            state=state,
            search=search,
            order=order,
        ),
    )


@router.get("/runs", dependencies=[require_to_open(KeyScope.READ)])
async def redirect_to_runs() -> Response:
    """Redirects the address that a person would type: the page of runs is `/`."""
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


class Links:
    """The page's address with some of its choices changed."""

    def __init__(self, **chosen: object) -> None:
        self._chosen = {**chosen, "page": 1}

    def __call__(self, **changed: object) -> str:
        values = {**self._chosen, **changed}
        usual = {"group": Group.ALL, "order": Order.TROUBLE, "page": 1}
        query = {
            name: str(value) for name, value in values.items() if value and value != usual.get(name)
        }
        return f"/?{urlencode(query)}" if query else "/"
