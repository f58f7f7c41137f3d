"""Closes connections whose other end does not keep up, so that they do not accumulate.

uvicorn waits without limit for the rest of a request, and for a peer to read an answer. A client
that sends a byte a second ("slow loris"), stops reading or was cut off below TCP would hold a
socket, and a request's memory, for as long as it likes.
"""

import asyncio
import logging
import socket
from enum import StrEnum
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger(__name__)

MIN_BYTES_PER_S: Final = 1024
"""Least rate of a request's body: a connection slower than this cannot carry frames anyway."""


class Waiting(StrEnum):
    """What a connection waits for from its other end."""

    HEAD = "the rest of a request's head"
    BODY = "the rest of a request's body"
    READER = "an answer to be read"


_State = tuple[Waiting | None, RequestResponseCycle | None, int]


class SlowPeerProtocol(H11Protocol):
    """Checks its connection every `patience_s` seconds.

    Closes it if it waits for the same thing as at the check before and too little has moved, which
    is after one to two times `patience_s`.
    """

    patience_s: float = 30.0
    _before: _State

    def connection_made(  # type: ignore[override]  # as uvicorn's own: a transport of both ways
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        _find_dead_peers(transport, self.patience_s)
        self._num_bytes = 0
        self._num_drained = 0
        self._before = self._state()
        self._bytes_before = 0
        self._next_check = self.loop.call_later(self.patience_s, self._check)

    def data_received(self, data: bytes) -> None:
        self._num_bytes += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        self._num_drained += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_check.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        state, num_bytes = self._state(), self._num_bytes - self._bytes_before
        waiting = state[0]
        if (
            waiting is not None
            and state == self._before
            and not self._is_moving(waiting, num_bytes)
        ):
            log.info("a connection from %s is closed: it waited for %s", self.client, waiting)
            self.transport.abort()
            return
        self._before, self._bytes_before = state, self._num_bytes
        self._next_check = self.loop.call_later(self.patience_s, self._check)

    def _is_moving(self, waiting: Waiting, num_bytes: int) -> bool:
        return waiting is Waiting.BODY and num_bytes >= MIN_BYTES_PER_S * self.patience_s

    def _state(self) -> _State:
        """What is waited for, in which request, and how often its answer has moved on since."""
        return self._waiting(), self._request, self._num_drained

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The newest request; None before the first, though uvicorn's types do not say so."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _waiting(self) -> Waiting | None:
        if self.flow.write_paused:
            return Waiting.READER
        if self._request is None or self._request.response_complete:
            # Between two requests uvicorn has a timer of its own, until the next first byte.
            return Waiting.HEAD if self.timeout_keep_alive_task is None else None
        # If the app does not keep up with the body, the other end is not to blame.
        return Waiting.BODY if self._request.more_body and not self.flow.read_paused else None


def closing_slow_peers(patience_s: float) -> type[SlowPeerProtocol]:
    """The protocol class with this interval; uvicorn makes an instance for each connection."""
    return type("SlowPeerProtocol", (SlowPeerProtocol,), {"patience_s": patience_s})


def _find_dead_peers(transport: asyncio.Transport, patience_s: float) -> None:
    """Lets the kernel probe whether the other end is still there: a cut line sends no message."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", patience_s), ("TCP_KEEPINTVL", patience_s / 4)):
        if hasattr(socket, option):  # not every system has each of them
            number = getattr(socket, option)
            connection.setsockopt(socket.IPPROTO_TCP, number, max(1, round(seconds)))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = round(2000 * patience_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
