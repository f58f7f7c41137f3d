"""uvicorn's server, with callbacks for its start and stop, and without its polling while idle."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn

_DATE_S: Final = 1.0
"""How often, in seconds, the Date header of answers is refreshed."""


class Server(uvicorn.Server):
    """`on_started` is called once the server answers; only then may the address be announced.

    `on_stopping` is called when it is about to stop; uvicorn itself tells the app only after every
    request has ended.
    """

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
        """Waits for a signal. uvicorn's own loop wakes ten times a second to check for one, which
        was a fifth of the work of a service without runs."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._date_s):
                    await self._is_told.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:  # otherwise the loop has yet to begin, and checks first
            self._loop.call_soon_threadsafe(self._is_told.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """A second Ctrl-C ends the wait for requests and nothing else. uvicorn would leave out the
        end of the app too, and cancel all tasks at once, among them the one that commits what
        others then wait for."""
        self._on_stopping()
        await super().shutdown(sockets)
        if self.force_exit:
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()
