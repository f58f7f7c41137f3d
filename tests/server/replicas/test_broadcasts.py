"""News between replicas, over a channel that does what its library does."""

import asyncio
from collections.abc import Callable

import pytest

from runwatch_server.cancellation import end_tasks
from runwatch_server.replicas.broadcasts import Broadcasts

pytestmark = pytest.mark.anyio


class LosingChannel:
    """Loses the cancellation of its first listener, as `asyncio.wait_for` may on Python 3.11."""

    def __init__(self) -> None:
        self.is_first = True

    async def notify(self, payload: str) -> None:
        """Nobody listens."""

    async def listen(self, on_message: Callable[[str], None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.is_first:
                raise
            self.is_first = False


async def test_broadcasts_end_though_their_channel_loses_a_cancellation() -> None:
    running = asyncio.create_task(Broadcasts("one", LosingChannel()).run())
    await asyncio.sleep(0.01)
    async with asyncio.timeout(60.0):
        await end_tasks([running], again_s=0.01)
    assert running.cancelled()
