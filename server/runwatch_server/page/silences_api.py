"""`/silences`: silences, what they hold back, and who created them."""

from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.notify.silences import list_silences
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.services import CurrentServices
from runwatch_server.web.pagination import part_of
from runwatch_server.web.parameters import NextToken

router: Final = APIRouter(include_in_schema=False)

_SHOWN: Final = 100


@router.get("/silences", dependencies=[require_to_open(KeyScope.READ)])
async def show_silences(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    before: NextToken = None,
) -> Response:
    """Silences that are in force or begin later, newest first."""
    now = services.clock.wall()
    async with services.database.read() as connection:
        found = await list_silences(
            connection,
            ending_after=now,
            projects=None if principal.project is None else [principal.project],
            before_id=before,
            limit=_SHOWN + 1,
        )
    shown, older = part_of(found, _SHOWN, lambda silence: silence.id)
    return render(
        request,
        "silences.html",
        silences=shown,
        older=older,
        now=now,
        has_alertmanager=services.receivers.alertmanagers is not None,
        names=await names_of_keys(services),
    )
