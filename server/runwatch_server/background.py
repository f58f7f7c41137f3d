"""Loops that run as long as the service does: judging silence, renewing leases, sending messages.

Without a restart, a loop that fails once would be missing from then on while everything else looks
fine. So a failure is logged and counted, and the loop is started again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

_AGAIN_S: Final = 5.0
_CANCEL_AGAIN_S: Final = 3.0


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


async def end_tasks(
    tasks: Collection[asyncio.Task[Any]], *, again_s: float = _CANCEL_AGAIN_S
) -> None:
    """Cancel tasks and wait until they have ended.

    Those that go on are cancelled again every `again_s` seconds: before Python 3.12,
    `asyncio.wait_for` loses a cancellation that comes together with the result it waits for, and
    libraries use it (SQLAlchemy, when no connection of its pool is free).
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)


async def _run_again(loop: Loop, observer: LoopObserver, again_s: float) -> None:
    while True:
        try:
            return await loop.run()
        except Exception:  # whatever it was, the next attempt may succeed
            log.exception("%s failed; starting again in %g s", loop.name, again_s)
            observer.observe_loop_failure(loop.name)
        await asyncio.sleep(again_s)
