"""Answers errors with a page for browsers that asked for one; programs still get the problem
document."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from runwatch.messages import Problem
from runwatch_server.auth.cookies import session_cookie
from runwatch_server.errors import UnauthenticatedError
from runwatch_server.page.rendering import render
from runwatch_server.services import services_of

_Handler = Callable[[Request, Any], Response | Awaitable[Response]]

_UNSEEN: Final = Problem("Not found", 404, "not_found", "There is nothing at this address.")
"""What belongs to another project looks as if it did not exist."""

_KEPT: Final = ("Allow", "Retry-After")
"""Headers of the problem that the page keeps."""


def add_error_pages(app: FastAPI) -> None:
    """Let the handlers that were added so far answer browsers with pages."""
    for kind, handler in list(app.exception_handlers.items()):
        app.add_exception_handler(kind, _for_people_too(handler))


def wants_page(request: Request) -> bool:
    """Whether a browser opens an address; the page's scripts ask for JSON."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get(
        "Accept", ""
    )


def login_url(request: Request) -> str:
    """The URL of the login page, which leads back here."""
    here = _here(request)
    return "/login" if here == "/" else f"/login?next={quote(here)}"


def _for_people_too(handler: _Handler) -> _Handler:
    async def handle(request: Request, error: Any) -> Response:
        answer = handler(request, error)
        if not isinstance(answer, Response):
            answer = await answer
        if not wants_page(request):
            return answer
        problem = msgspec.json.decode(answer.body, type=Problem)
        if problem.status == 401:
            return _to_login(request)
        if problem.code == "foreign_project":
            problem = _UNSEEN
        await _recognise(request)
        page = render(request, "error.html", status=problem.status, problem=problem)
        page.headers.update(
            {name: answer.headers[name] for name in _KEPT if name in answer.headers}
        )
        return page

    return handle


async def _recognise(request: Request) -> None:
    """Find out whose session it is if the route itself did not ask: the page keeps its frame."""
    services = services_of(request)
    cookie = session_cookie(request, services.settings)
    if cookie is not None:
        with suppress(UnauthenticatedError):
            request.state.principal = await services.sessions.authenticate(cookie)


def _to_login(request: Request) -> Response:
    """A page that leads to the login. When a link in a message is followed, a browser does not send
    a strict cookie; if our own page then makes the request again, it does."""
    if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.method == "GET":
        return render(request, "again.html", here=_here(request))
    return RedirectResponse(login_url(request), 303)


def _here(request: Request) -> str:
    """This address without scheme and host, which a proxy in front may know otherwise."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")
