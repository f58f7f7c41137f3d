"""uvicorn's server, which says when it answers and when it stops, and sleeps while it has nothing
to do."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn

_DATE_S: Final = 1.0
"""How often the date that each answer bears is made anew."""


class Server(uvicorn.Server):
    """`on_started` is called when it answers: only then may others be told the address.
    `on_stopping`, when it is about to stop, which uvicorn tells the app only once every request has
    ended."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_started: Callable[[], None] = lambda: None,
        on_stopping: Callable[[], None] = lambda: None,
        date_s: float = _DATE_S,
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping
        self._date_s = date_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_told = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def main_loop(self) -> None:
        """Until a signal comes. uvicorn's own wakes ten times a second to look whether one has,
        which was a fifth of what a service without a run did."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_told.wait(), self._date_s)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:  # else it is only about to begin, and looks first
            self._loop.call_soon_threadsafe(self._is_told.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        await super().shutdown(sockets)
