"""The message to a receiver, and the interface of what sends it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from runwatch_server.notify.networks import ConnectionGuard

ATTEMPT_S: Final = 30.0
"""Longest wait for a receiver in seconds, even if each single byte of its answer comes in time."""

_MOST_BYTES: Final = 16 * 2**20
"""Largest answer that is accepted; usual ones have some hundred bytes. The HTTP client reads all of
an answer into memory: an endless one took 150 MB a second, until the service was killed."""
_LOOK_EVERY_S: Final = 0.1


@asynccontextmanager
async def cut_after(guard: ConnectionGuard, longest_s: float) -> AsyncGenerator[None]:
    """Wait in this context for an attempt on another thread. It is cut off if it takes too long,
    if its answer is too large, or if the service stops, because nothing else would end it. Raises
    TimeoutError."""
    watching = asyncio.create_task(_cut_if_flooded(guard))
    try:
        async with asyncio.timeout(longest_s):
            yield
    except (TimeoutError, asyncio.CancelledError):
        guard.cut()
        raise
    finally:
        watching.cancel()


async def _cut_if_flooded(guard: ConnectionGuard) -> None:
    while guard.num_received <= _MOST_BYTES:
        await asyncio.sleep(_LOOK_EVERY_S)
    guard.cut()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    title: str
    body: str
    dedup_key: str
    """The same for all messages of one incident, and for repeated sending of the same message."""
    is_over: bool
    """Whether the message ends the incident."""
    did_recover: bool = True
    """Whether an incident that it ends is over because the run is healthy again."""


class Sender(Protocol):
    def send(self, message: Message, guard: ConnectionGuard) -> str:
        """Send a message; returns why the receiver did not accept it, in words without secrets;
        empty if it did. Blocks, at most until the line is cut: call it on a worker thread."""
        ...
