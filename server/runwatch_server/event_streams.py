"""Event streams that readers hold open: how many there may be, and when they end."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from runwatch_server.alerts.announcements import Announcer
from runwatch_server.auth.keys import Principal
from runwatch_server.auth.service import Keys
from runwatch_server.errors import (
    OverloadedError,
    ServiceError,
    TooManyStreamsError,
    UnauthenticatedError,
)

log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 30


class EventStreams:
    """The open streams, counted in memory, so by each replica for itself.

    A stream outlives the checks at its start: its key may be revoked meanwhile, and it takes a
    socket and one database query a second for as long as its reader likes.
    """

    def __init__(self, keys: Keys, announcer: Announcer, *, of_key: int, in_all: int) -> None:
        """At most `of_key` for each key and `in_all` in total; a page counts for its key."""
        self._keys = keys
        self._announcer = announcer
        self._most_of_key = of_key
        self._most_in_all = in_all
        self._open: Counter[str] = Counter()

    def respond(self, principal: Principal, events: AsyncIterator[bytes]) -> StreamingResponse:
        """A response that counts as open while it is sent.

        Raises TooManyStreamsError if the key has too many open, OverloadedError if the service has.
        """
        if self._open[principal.key_id] >= self._most_of_key:
            raise TooManyStreamsError(self._most_of_key, _RETRY_AFTER_S)
        if self._open.total() >= self._most_in_all:
            detail = f"{self._most_in_all} event streams are open, the most allowed."
            raise OverloadedError("too_many_streams", detail, retry_after_s=_RETRY_AFTER_S)
        return _CountedResponse(events, self._open, principal.key_id)

    async def goes_on(self, request: Request, principal: Principal) -> bool:
        """Whether the reader is still there, its key is still valid and the service runs on."""
        if not self._announcer.is_open or await request.is_disconnected():
            return False
        try:
            await self._keys.principal(principal.key_id)
        except UnauthenticatedError:
            return False
        return True


class _CountedResponse(StreamingResponse):
    """Counts here and not in the iterator, which never starts if the reader leaves early."""

    def __init__(self, events: AsyncIterator[bytes], open_: Counter[str], key_id: str) -> None:
        super().__init__(
            events,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._of_keys = open_
        self._key_id = key_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._of_keys[self._key_id] += 1
        try:
            await self._send_all(send)
        finally:
            self._of_keys[self._key_id] -= 1
            if not self._of_keys[self._key_id]:
                del self._of_keys[self._key_id]

    async def _send_all(self, send: Send) -> None:
        """Sends until `goes_on` ends the stream.

        Starlette cancels the stream as soon as the reader has gone, wherever it is. In the middle
        of a database query that loses the connection for all others.
        """
        try:
            await self.stream_response(send)
        except ServiceError as error:
            # The answer has begun, so its status can say nothing; readers connect again.
            log.info("an event stream ends: %s", error)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
