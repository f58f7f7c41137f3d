"""Security headers of every answer, so that one opened in a browser can do no harm."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Defaults, which a route may override: pages have a policy of their own, assets are cached."""
_HSTS: Final = "max-age=31536000"


class SecurityHeaders:
    """Adds the headers to every answer, also to those of other middleware."""

    def __init__(self, app: ASGIApp, *, has_tls: bool) -> None:
        self._app = app
        self._headers = _ALWAYS | ({"Strict-Transport-Security": _HSTS} if has_tls else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in self._headers.items():
                    headers.setdefault(name, text)
            await send(message)

        await self._app(scope, receive, send_with_headers)
