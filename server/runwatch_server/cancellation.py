"""Cancelling tasks such that none goes on, and waiting for what a cancellation may not interrupt.

A cancellation may be lost: before Python 3.12, `asyncio.wait_for` swallows one that comes together
with the result it waits for, and libraries use it (SQLAlchemy before 2.1.9, when no connection of
its pool is free). So a task is cancelled until it has ended, and what it does may be cancelled more
than once.
"""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CANCEL_AGAIN_S: Final = 3.0


async def end_tasks(
    tasks: Collection[asyncio.Task[Any]], *, again_s: float = _CANCEL_AGAIN_S
) -> None:
    """Cancel tasks and wait until they have ended, even if the caller is cancelled. Those that go
    on are cancelled again every `again_s` seconds."""
    left = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=again_s)
        except asyncio.CancelledError as error:
            cancelled = error
        left = {task for task in left if not task.done()}
    if cancelled is not None:
        raise cancelled


async def run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until all have ended. If one fails, or the caller is cancelled, all are ended.

    A TaskGroup cancels its tasks only once: one that loses that keeps it waiting forever.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)


async def result_of(future: "asyncio.Future[T]") -> T:
    """Wait until a future is done, however often the caller is cancelled. Returns its result or
    raises its error, but only CancelledError if the caller was cancelled."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # or it would be logged as an error that nobody retrieved
        raise
