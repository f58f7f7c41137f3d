"""The check on every route, which is closed unless it declares what it requires.

A route declares `dependencies=[require(KeyScope.READ)]` or `[public()]`. The app-wide
`deny_by_default` refuses every route that declares nothing, so that a forgotten line closes a
route instead of opening it. What a browser opens without a script declares `require_to_open`.
"""

from enum import StrEnum
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.params import Depends as DependsParam
from fastapi.routing import APIRoute

from runwatch_server.auth.cookies import check_page_secret, check_same_origin, session_cookie
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.errors import ForbiddenError, UnauthenticatedError
from runwatch_server.services import services_of

_SCHEME: Final = "bearer "


class Proof(StrEnum):
    """What a route asks of somebody who is logged in to the page; a key is always enough."""

    COOKIE = "cookie"
    """Which other users of the host can get, if they listen on another of its ports."""
    PAGE_SECRET = "page_secret"
    """And the cookie."""
    KEY = "key"
    """The key itself, once more."""


class Requirement:
    """The scope that a route requires of a request's key, None: the route is public; and how
    somebody who is logged in proves to have it."""

    def __init__(self, scope: KeyScope | None, proof: Proof = Proof.PAGE_SECRET) -> None:
        self.scope = scope
        self.proof = proof

    async def __call__(self, request: Request) -> None:
        limits = services_of(request).rate_limits
        if self.scope is None:
            if request.method != "GET":  # a login, where keys can be guessed
                limits.refused.take(_address(request))
            return
        try:
            principal = await _authenticate(request, self.proof)
            principal.check_scope(self.scope)
        except (UnauthenticatedError, ForbiddenError):
            limits.refused.take(_address(request))
            raise
        by_key = limits.ingest if self.scope is KeyScope.INGEST else limits.requests
        by_key.take(principal.key_id)


def require(scope: KeyScope) -> DependsParam:
    """A dependency: the request's key must have this scope."""
    return DependsParam(Requirement(scope))


def require_to_open(scope: KeyScope) -> DependsParam:
    """The same for what a browser opens without a script of ours that could send the page secret:
    pages, and event streams."""
    return DependsParam(Requirement(scope, Proof.COOKIE))


def require_key(scope: KeyScope) -> DependsParam:
    """The same for what outlasts a session: no session is enough, the key itself must be sent."""
    return DependsParam(Requirement(scope, Proof.KEY))


def public() -> DependsParam:
    """A dependency: the route is deliberately open to everyone."""
    return DependsParam(Requirement(None))


def requirement_of(route: APIRoute) -> Requirement | None:
    """The requirement that a route declares; None if it declares none."""
    calls = (dependency.call for dependency in route.dependant.dependencies)
    return next((call for call in calls if isinstance(call, Requirement)), None)


async def deny_by_default(request: Request) -> None:
    """App-wide dependency. Raises ForbiddenError for a route that declares no requirement."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or requirement_of(route) is None:
        raise ForbiddenError("undeclared_route", "This route does not declare who may use it.")


async def _authenticate(request: Request, proof: Proof) -> Principal:
    """Authenticates by the key in `Authorization`, else by the page's cookie."""
    services = services_of(request)
    text = request.headers.get("Authorization", "")
    cookie = session_cookie(request, services.settings)
    if text:
        principal = await services.keys.authenticate(_bearer(text))
    elif cookie is not None:
        principal = await services.sessions.authenticate(cookie)
        _check_proof(request, cookie, proof)
    else:
        raise UnauthenticatedError(
            "missing_key", "Send an API key: 'Authorization: Bearer runwatch_...'."
        )
    request.state.principal = principal
    return principal


def _check_proof(request: Request, cookie: str, proof: Proof) -> None:
    """Raises ForbiddenError and UnauthenticatedError."""
    if request.method != "GET":
        check_same_origin(request)
    if proof is Proof.KEY:
        raise ForbiddenError(
            "key_wanted", "A login is not enough for this: send the API key in Authorization."
        )
    if proof is Proof.PAGE_SECRET:
        check_page_secret(request, cookie)


async def reader_of(request: Request) -> Principal | None:
    """Who asks a public route, if it is somebody who may read. Raises RateLimitedError for one
    wrong key after the other."""
    try:
        principal = await _authenticate(request, Proof.PAGE_SECRET)
        principal.check_scope(KeyScope.READ)
    except (UnauthenticatedError, ForbiddenError):
        if "Authorization" in request.headers:
            services_of(request).rate_limits.refused.take(_address(request))
        return None
    return principal


def _address(request: Request) -> str:
    """The client's address as uvicorn gives it, which believes a proxy only if it trusts it."""
    return request.client.host if request.client else ""


def _bearer(text: str) -> str:
    if not text.lower().startswith(_SCHEME):
        raise UnauthenticatedError("malformed_key", "Authorization: wanted the scheme Bearer.")
    return text[len(_SCHEME) :].strip()


async def _principal(request: Request) -> Principal:
    principal = request.state.principal
    assert isinstance(principal, Principal), "only routes that require a scope have a principal"
    return principal


CurrentPrincipal = Annotated[Principal, Depends(_principal)]
"""The caller, on a route that requires a scope."""
