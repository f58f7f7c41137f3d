"""Measures how long answers take, by route."""

import time
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_UNMATCHED: Final = "unmatched"
"""One label for all unknown paths, so that guessed paths create no new series."""


class Observe(Protocol):
    def __call__(self, route: str, status: int, *, seconds: float) -> None: ...


class RequestTimer:
    """Reports each request once its answer has begun."""

    def __init__(self, app: ASGIApp, observe: Observe) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - started
                self._observe(_route(scope), message["status"], seconds=seconds)
            await send(message)

        await self._app(scope, receive, send_timed)


def _route(scope: Scope) -> str:
    """The pattern of the route that answered, such as `/api/v1/runs/{run_id}`."""
    route = scope.get("route")
    return getattr(route, "path", _UNMATCHED)
