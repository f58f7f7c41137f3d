"""A thread of the service's own for what may not run on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


class JudgingThread:
    """Does one thing after another, and says for how long it has been at the present one."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._since: float | None = None

    @property
    def busy_s(self) -> float:
        """0 where there is nothing to be done. Grows without end where the thread waits for a
        process that was stopped."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    async def do(self, function: Callable[[], T]) -> T:
        """What a function returns, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._timed, function)

    def _timed(self, function: Callable[[], T]) -> T:
        self._since = monotonic()
        try:
            return function()
        finally:
            self._since = None

    def shutdown(self) -> None:
        self._pool.shutdown()
