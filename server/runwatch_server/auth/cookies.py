"""The page's session cookie, and the check that a request with it comes from our own page (CSRF).

A key in `Authorization` needs no such check: no other site can make a browser send it.
"""

import hmac
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Request, Response

from runwatch_server.auth.sessions import SESSION_S, csrf_token
from runwatch_server.errors import ForbiddenError
from runwatch_server.settings import Settings
from runwatch_server.web.zero_bytes import check_texts

CSRF_HEADER: Final = "X-CSRF-Token"
CSRF_FIELD: Final = "csrf"
_FORM: Final = "application/x-www-form-urlencoded"


def cookie_name(request: Request, settings: Settings) -> str:
    """The cookie's name.

    `__Host-` binds the cookie to this very host, and needs TLS. Without TLS, so on loopback only,
    the port in the name separates two services of one machine: cookies are shared by all ports.
    """
    return "__Host-runwatch" if _is_secure(request, settings) else f"runwatch-{request.url.port}"


def session_secret(request: Request, settings: Settings) -> str | None:
    """The secret in a request's cookie."""
    return request.cookies.get(cookie_name(request, settings))


def set_session(request: Request, response: Response, settings: Settings, secret: str) -> None:
    response.set_cookie(
        cookie_name(request, settings),
        secret,
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


async def check_own_page(request: Request, secret: str) -> None:
    """Raises ForbiddenError unless a request that changes something comes from our own page.

    Judged by the origin that the browser states and by the session's CSRF token.
    """
    if request.method == "GET":
        return
    check_same_origin(request)
    given = request.headers.get(CSRF_HEADER) or (await form_of(request)).get(CSRF_FIELD, "")
    if not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        raise ForbiddenError(
            "csrf", f"The request lacks the session's CSRF token: send {CSRF_HEADER}, or reload."
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
