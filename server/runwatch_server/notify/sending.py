"""The message to a receiver, and the interface of what sends it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from runwatch_server.notify.networks import Line

ATTEMPT_S: Final = 30.0
"""Longest wait for a receiver in seconds, even if each single byte of its answer comes in time."""


@asynccontextmanager
async def cut_after(line: Line, longest_s: float) -> AsyncGenerator[None]:
    """Wait within this context for an attempt on another thread. If it takes too long, or if the
    service stops, it is cut off, because nothing else would end it. Raises TimeoutError."""
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
    """The same for all messages of one incident, and for repeated sending of the same message."""
    is_over: bool
    """Whether the message ends the incident."""


class Sender(Protocol):
    def send(self, message: Message, line: Line) -> bool:
        """Send a message; returns whether the receiver accepted it. Blocks, at most until the line
        is cut: call it on a worker thread."""
        ...
