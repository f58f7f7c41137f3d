"""What goes on as long as the service does, beside its requests: judging silence, renewing leases,
telling people. A loop that fails must not be missing from then on, while all else looks well: it
is logged, counted, and begun again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs until it is cancelled; what it remembers is not in its coroutine."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


class LoopObserver(Protocol):
    """Hears how the loops are doing."""

    def watch_loop(self, name: str) -> None: ...
    def observe_loop_failure(self, name: str) -> None: ...


def keep_running(
    stack: AsyncExitStack, loop: Loop, observer: LoopObserver, *, again_s: float = _AGAIN_S
) -> None:
    """Runs a loop in the background until the stack closes; one that fails is begun again after
    `again_s` seconds."""
    observer.watch_loop(loop.name)
    task = asyncio.create_task(_run_again(loop, observer, again_s), name=loop.name)

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)


async def _run_again(loop: Loop, observer: LoopObserver, again_s: float) -> None:
    while True:
        try:
            return await loop.run()
        except Exception:  # whatever it was: the next time may go well
            log.exception("%s failed; begun again in %g s", loop.name, again_s)
            observer.observe_loop_failure(loop.name)
        await asyncio.sleep(again_s)
