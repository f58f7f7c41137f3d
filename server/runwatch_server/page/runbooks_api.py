"""`/runbooks`: what to do when a rule fires; alerts link here."""

from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import NotFoundError
from runwatch_server.page.markdown import to_html
from runwatch_server.page.rendering import render
from runwatch_server.runbooks import read_runbook, runbook_names

router: Final = APIRouter(include_in_schema=False)


@router.get("/runbooks", dependencies=[require_to_open(KeyScope.READ)])
async def list_runbooks(request: Request) -> Response:
    return render(request, "runbooks.html", names=runbook_names())


@router.get("/runbooks/{name}", dependencies=[require_to_open(KeyScope.READ)])
async def show_runbook(name: str, request: Request) -> Response:
    text = read_runbook(name)
    if text is None:
        raise NotFoundError("runbook_not_found", f"There is no runbook {name!r}.")
    return render(request, "runbook.html", name=name, text=to_html(text))
