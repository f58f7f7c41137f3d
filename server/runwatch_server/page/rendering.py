"""Renders templates as responses: escaped, and with the security headers of pages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
from fastapi import Request, Response
from markupsafe import Markup

import runwatch
from runwatch_server.auth.cookies import session_cookie
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.page import filters
from runwatch_server.page.assets import PLOTLY, load_assets
from runwatch_server.services import services_of

_FOLDER: Final = Path(__file__).parent / "templates"

_POLICY: Final = (
    "default-src 'self'",
    "img-src 'self' data: blob:",
    "style-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "object-src 'none'",
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not no-referrer, since a browser would then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def render(
    request: Request,
    template: str,
    /,
    *,
    status: int = 200,
    **values: object,
) -> Response:
    """A page. Templates see `me` (who asks, or None), `may[scope]`, `asset(name)`, the filters."""
    html = _ENVIRONMENT.get_template(template).render(**_shared(request), **values)
    return Response(html, status, _HEADERS, media_type="text/html")


def _shared(request: Request) -> Mapping[str, Any]:
    me: Principal | None = getattr(request.state, "principal", None)
    cookie = session_cookie(request, services_of(request).settings)
    return {
        "me": me,
        "may": {scope.value: me is not None and me.allows(scope) for scope in KeyScope},
        "is_logged_in": me is not None and cookie is not None,
        "path": request.url.path,
    }


def _embedded_json(value: object) -> Markup:
    """JSON for `<script type="application/json">`, which no text in it can close."""
    text = msgspec.json.encode(value).decode()
    return Markup(text.replace("<", "\\u003c"))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=filters.readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assets = load_assets()
    shared: dict[str, Any] = {
        "asset": assets.url,
        "plotly_url": assets.url(PLOTLY),
        "version": runwatch.__version__,
    }
    environment.globals.update(shared)
    environment.filters.update({"embedded_json": _embedded_json, **filters.ALL})
    return environment


_ENVIRONMENT: Final = _environment()
