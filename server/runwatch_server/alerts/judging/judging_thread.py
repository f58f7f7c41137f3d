"""A thread of the service's own for what may not run on the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_SHARE_S: Final = 2.0
"""What can wait gets a turn, of a quarter of a second or so, after so much work of others."""


class _Work(NamedTuple):
    function: Callable[[], Any]
    result: Future[Any]


class JudgingThread:
    """Does one thing after another, and says for how long it has been at the present one. What can
    wait gives way to everything else, or an import of old logs would hold up the alerts of what
    trains now."""

    def __init__(self, name: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._next: deque[_Work] = deque()
        self._can_wait: deque[_Work] = deque()
        self._others_s = 0.0
        """Spent on others since something that can wait had its last turn."""
        self._since: float | None = None

    @property
    def busy_s(self) -> float:
        """0 where there is nothing to be done."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    @property
    def since(self) -> float | None:
        """When it began with the present one, by the monotonic clock; None where there is none."""
        return self._since

    async def do(self, function: Callable[[], T], *, can_wait: bool = False) -> T:
        """What a function returns, in its turn."""
        result: Future[T] = Future()
        (self._can_wait if can_wait else self._next).append(_Work(function, result))
        self._pool.submit(self._do_one)
        return await asyncio.wrap_future(result)

    def _do_one(self) -> None:
        """Once for each work that was added, though seldom the same one."""
        gives_way = bool(self._next) and self._others_s < _SHARE_S
        queue = self._can_wait if self._can_wait and not gives_way else self._next
        function, result = queue.popleft()
        if not result.set_running_or_notify_cancel():
            return
        began = self._since = self._clock()
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the work was asked for
            result.set_exception(error)
        finally:
            self._since = None
            took_s = self._clock() - began
            self._others_s = self._others_s + took_s if queue is self._next else 0.0

    def shutdown(self) -> None:
        self._pool.shutdown()
