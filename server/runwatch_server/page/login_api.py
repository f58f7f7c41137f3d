"""`/login`, `/logout`: a key is entered once, and a session stands for it from then on."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from runwatch_server.auth.cookies import (
    check_same_origin,
    form_of,
    session_cookie,
    set_session,
    unset_session,
)
from runwatch_server.auth.guard import public, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import ForbiddenError, UnauthenticatedError
from runwatch_server.page.rendering import render
from runwatch_server.services import CurrentServices

router: Final = APIRouter(include_in_schema=False)


@router.get("/login", dependencies=[public()])
async def show_login(
    request: Request, next_path: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    return _show_form(request, next_path, logs_in=_was_opened_by_hand(request))


@router.post("/login", dependencies=[public()])
async def log_in(request: Request, services: CurrentServices) -> Response:
    """Open a session for the key in the form. The answer is a page that keeps the page secret in
    the browser, and leads to the requested one."""
    check_same_origin(request)
    form = await form_of(request)
    next_path = _own_path(form.get("next", "/"))
    try:
        principal = await services.keys.authenticate(form.get("key", "").strip())
        principal.check_scope(KeyScope.READ)
    except (UnauthenticatedError, ForbiddenError) as error:
        return _show_form(request, next_path, status=error.status, fault=error.detail)
    opened = await services.sessions.open(principal)
    response = render(
        request, "logged_in.html", page_secret=opened.page_secret, next_path=next_path
    )
    set_session(request, response, services.settings, opened.cookie)
    return response


@router.post("/logout", dependencies=[require_to_open(KeyScope.READ)])
async def log_out(request: Request, services: CurrentServices) -> Response:
    """End the session; the key stays."""
    cookie = session_cookie(request, services.settings)
    if cookie is not None:
        await services.sessions.close(cookie)
    response = RedirectResponse("/login", 303)
    unset_session(request, response, services.settings)
    return response


def _show_form(
    request: Request,
    next_path: str,
    *,
    status: int = 200,
    fault: str = "",
    logs_in: bool = False,
) -> Response:
    """`logs_in`: a key in the address is used at once."""
    shown = {"next_path": _own_path(next_path), "fault": fault, "logs_in": logs_in}
    return render(request, "login.html", status=status, **shown)


def _was_opened_by_hand(request: Request) -> bool:
    """Whether the address was clicked in a terminal, typed or kept, and is no link on a page: that
    could log its reader in with a key of somebody else's, so a person has to agree to it."""
    return request.headers.get("Sec-Fetch-Site") == "none"


def _own_path(path: str) -> str:
    """The path if it is one of ours, else the first page: `//evil.example` is another host, and so
    is `/\\evil.example` to a browser."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"
