"""What is sent to a receiver, and what sends it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from runwatch_server.notify.networks import Line

ATTEMPT_S: Final = 30.0
"""A receiver whose answer drips is waited for no longer: each byte of it comes in time."""


@asynccontextmanager
async def cut_after(line: Line, longest_s: float) -> AsyncGenerator[None]:
    """Within, an attempt on another thread is waited for. One that is waited for no longer, because
    it takes too long or because the service stops, is cut off: nothing else would end it. Raises
    TimeoutError."""
    try:
        async with asyncio.timeout(longest_s):
            yield
    except (TimeoutError, asyncio.CancelledError):
        line.cut()
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    title: str
    body: str
    dedup_key: str
    """The same for all that is told of one incident, and for what is sent twice."""
    is_over: bool
    """Whether it ends the incident."""


class Sender(Protocol):
    def send(self, message: Message, line: Line) -> bool:
        """Whether the receiver took it. Blocks until the line is cut; to be called on a worker
        thread."""
        ...
