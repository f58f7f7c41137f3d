"""`/jobs/{job}`: leads to a job's run as soon as there is one, and waits for it until then."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import RedirectResponse

from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.page.rendering import render
from runwatch_server.services import CurrentServices
from runwatch_server.web.parameters import ULID

router: Final = APIRouter(include_in_schema=False)

_LONGEST_NAME: Final = 256


@router.get("/jobs/{job}", dependencies=[require_to_open(KeyScope.READ)])
async def show_job(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    job: Annotated[str, Path(pattern=ULID)],
    name: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
) -> Response:
    """The job's run or, if it has several, all of them; while it has none, a page that waits. The
    service knows a job only by its runs, so the link has its `name`."""
    found = await services.runs.list_runs(
        principal, project=None, state=None, job=job, before=None, limit=2
    )
    if not found:
        return render(request, "job.html", name=name)
    place = f"/runs/{found[0].id}" if len(found) == 1 else f"/?search={job}"
    return RedirectResponse(place, HTTPStatus.SEE_OTHER)
