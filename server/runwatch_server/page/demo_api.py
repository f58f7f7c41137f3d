"""`/demo-run`: a run to look at, for users who have none yet."""

from typing import Final

import msgspec
from fastapi import APIRouter, Response

from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.page.demo_run import PROJECT
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/api/v1", tags=["service"])


class DemoStarted(msgspec.Struct, frozen=True):
    run_id: str


@router.post(
    "/demo-run",
    status_code=202,
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=documented(answer=DemoStarted, status=202, refuses=[409]),
)
async def start_demo_run(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """Start the demo's training beside the service: it breaks at step 500 and is rolled back."""
    principal.check_project(PROJECT)
    return json_response(DemoStarted(await services.demo_run.start(principal)), 202)
