"""Loops that run as long as the service does: judging silence, renewing leases, sending messages.

Without a restart, a loop that fails once would be missing from then on while everything else looks
fine. So a failure is logged and counted, and the loop is started again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

from runwatch_server.cancellation import end_tasks

log = logging.getLogger(__name__)

_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs until it is cancelled; its state lives outside its coroutine, to survive a restart."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


class LoopObserver(Protocol):
    """Is told of the loops and of their failures."""

    def watch_loop(self, name: str) -> None: ...
    def observe_loop_failure(self, name: str) -> None: ...


def keep_running(
    stack: AsyncExitStack, loop: Loop, observer: LoopObserver, *, again_s: float = _AGAIN_S
) -> None:
    """Runs a loop in the background until the stack closes; a failed one starts again after
    `again_s` seconds."""
    observer.watch_loop(loop.name)
    task = asyncio.create_task(_run_again(loop, observer, again_s), name=loop.name)

    async def stop() -> None:
        await end_tasks([task])

    stack.push_async_callback(stop)


async def _run_again(loop: Loop, observer: LoopObserver, again_s: float) -> None:
    while True:
        try:
            return await loop.run()
        except Exception:  # whatever it was, the next attempt may succeed
            log.exception("%s failed; starting again in %g s", loop.name, again_s)
            observer.observe_loop_failure(loop.name)
        await asyncio.sleep(again_s)
