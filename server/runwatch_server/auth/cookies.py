"""The page's session cookie, and the checks that a request with it comes from our own page.

A key in `Authorization` needs no such check: no other site can make a browser send it.
"""

from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Request, Response

from runwatch_server.auth.sessions import SESSION_S, belong_together
from runwatch_server.errors import ForbiddenError, UnauthenticatedError
from runwatch_server.settings import Settings
from runwatch_server.web.zero_bytes import check_texts

PAGE_SECRET_HEADER: Final = "X-Page-Secret"
_FORM: Final = "application/x-www-form-urlencoded"


def cookie_name(request: Request, settings: Settings) -> str:
    """The cookie's name.

    `__Host-` binds the cookie to this very host, and needs TLS. Without TLS, so on loopback only,
    the port in the name separates two services of one machine: cookies are shared by all ports,
    which is why the cookie alone opens no more than pages.
    """
    return "__Host-runwatch" if _is_secure(request, settings) else f"runwatch-{request.url.port}"


def session_cookie(request: Request, settings: Settings) -> str | None:
    """The value of a request's cookie."""
    return request.cookies.get(cookie_name(request, settings))


def set_session(request: Request, response: Response, settings: Settings, cookie: str) -> None:
    response.set_cookie(
        cookie_name(request, settings),
        cookie,
        max_age=round(SESSION_S),
        httponly=True,
        secure=_is_secure(request, settings),
        samesite="strict",
    )


def unset_session(request: Request, response: Response, settings: Settings) -> None:
    response.delete_cookie(
        cookie_name(request, settings),
        httponly=True,
        secure=_is_secure(request, settings),
        samesite="strict",
    )


def check_page_secret(request: Request, cookie: str) -> None:
    """Raises UnauthenticatedError unless the request has the page secret of the cookie's session,
    which a program that was sent the cookie on another port has not."""
    if not belong_together(cookie, request.headers.get(PAGE_SECRET_HEADER, "")):
        raise UnauthenticatedError(
            "unproven_session",
            f"The session's cookie is not enough: send {PAGE_SECRET_HEADER}, or log in again.",
        )


def check_same_origin(request: Request) -> None:
    """Raises ForbiddenError for a request that a browser made on behalf of another site."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:
        origin = urlsplit(request.headers.get("Origin", ""))
        site = "same-origin" if origin.netloc == request.headers.get("Host") else "cross-site"
    if site != "same-origin":
        raise ForbiddenError("cross_site", "The request does not come from this service's page.")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a submitted form; empty if the body is no form. Raises UnprocessableError for a
    zero byte in one."""
    if not request.headers.get("Content-Type", "").startswith(_FORM):
        return {}
    text = (await request.body()).decode("utf-8", errors="replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    check_texts("form", fields)
    return {name: values[-1] for name, values in fields.items()}


def _is_secure(request: Request, settings: Settings) -> bool:
    return request.url.scheme == "https" or settings.behind_proxy
