"""`/welcome`: from the first key to the first run."""

from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.page.demo_run import COMMAND, PROJECT, can_train
from runwatch_server.page.rendering import render
from runwatch_server.services import CurrentServices

router: Final = APIRouter(include_in_schema=False)


@router.get("/welcome", dependencies=[require_to_open(KeyScope.READ)])
async def show_welcome(
    request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    url = services.settings.external_url or str(request.base_url)
    return render(
        request,
        "welcome.html",
        url=url.rstrip("/"),
        can_demo=can_train() and principal.project in (None, PROJECT),
        demo_command=COMMAND,
    )
