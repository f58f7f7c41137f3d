"""Answers HEAD wherever GET is answered, without the body (RFC 9110, 9.3.2).

Monitors and link checkers use it. Routes see only a GET.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Has to be outside of everything that looks at a request's method."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def receive_until_answered() -> Message:
            # An event stream would go on for as long as its reader is there.
            return {"type": "http.disconnect"} if is_answered else await receive()

        async def send_without_body(message: Message) -> None:
            nonlocal is_answered
            if message["type"] != "http.response.body":
                await send(message)
            elif not is_answered:
                is_answered = True
                await send({"type": "http.response.body", "body": b""})

        # A copy: the server itself reads the method from the original scope, to log it.
        await self._app({**scope, "method": "GET"}, receive_until_answered, send_without_body)
