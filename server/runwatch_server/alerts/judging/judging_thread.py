"""A thread for work that may not run on the event loop."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from runwatch_server.alerts.judging.fair_queue import Payer, SharedQueue

T = TypeVar("T")

_SHARE_S: Final = 2.0
"""Seconds of other work after which work that can wait gets a turn of about a quarter of a
second."""


class _Work(NamedTuple):
    function: Callable[[], Any]
    result: Future[Any]


class JudgingThread:
    """Does one thing after another, and knows for how long the current one has taken.

    Projects share it fairly, and so do the runs of each: a run that sends faster than it is judged
    delays itself, and the frame of a quiet run is next. Work that can wait gives way to all other
    work; otherwise an import of old logs would delay the alerts of runs that train now.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._next: SharedQueue[_Work] = SharedQueue()
        self._can_wait: SharedQueue[_Work] = SharedQueue()
        self._adding = Lock()
        """Held for moments: works are added on the event loop and taken on the thread."""
        self._others_s = 0.0
        """Seconds spent on other work since something that can wait had its last turn."""
        self._since: float | None = None

    @property
    def busy_s(self) -> float:
        """Seconds that the current work has taken; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    @property
    def since(self) -> float | None:
        """When the current work began, by the monotonic clock; None if there is none."""
        return self._since

    async def do(self, payer: Payer, function: Callable[[], T], *, can_wait: bool = False) -> T:
        """Call a function in its run's turn and return its result."""
        return await asyncio.wrap_future(self.put(payer, function, can_wait=can_wait))

    def put(self, payer: Payer, function: Callable[[], T], *, can_wait: bool = False) -> Future[T]:
        """The same, without waiting for the result."""
        result: Future[T] = Future()
        with self._adding:
            (self._can_wait if can_wait else self._next).put(payer, _Work(function, result))
        self._pool.submit(self._do_one)
        return result

    def _do_one(self) -> None:
        """Do the next piece of work. Called once for each piece that was added, though rarely for
        that one."""
        with self._adding:
            gives_way = len(self._next) > 0 and self._others_s < _SHARE_S
            queue = self._can_wait if len(self._can_wait) and not gives_way else self._next
            payer, (function, result) = queue.take()
        if not result.set_running_or_notify_cancel():
            with self._adding:
                queue.charge(payer, 0.0)
            return
        try:
            with self._at_work(queue, payer):
                value = function()
        except BaseException as error:  # noqa: BLE001 - raised by whoever awaits the result
            result.set_exception(error)
        else:
            result.set_result(value)

    @contextmanager
    def _at_work(self, queue: SharedQueue[_Work], payer: Payer) -> Generator[None]:
        """Count the time. Left before the result is given, or whoever has it would still find this
        thread busy with it."""
        began = self._since = self._clock()
        try:
            yield
        finally:
            self._since = None
            took_s = self._clock() - began
            self._others_s = self._others_s + took_s if queue is self._next else 0.0
            with self._adding:
                queue.charge(payer, took_s)

    def shutdown(self) -> None:
        self._pool.shutdown()
