"""Makes rows one at a time, although several threads and signal handlers may log.

What is logged while a row is being made, by another thread or by a signal handler that interrupts
it, is queued and made into a row afterwards. A row made in the middle of another would corrupt
both.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from runwatch_hooks.seeing.numbers import Number

_PATIENCE_S: Final = 1.0
"""A row takes microseconds. If another thread hangs in one, training waits no longer than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """Logged metrics that have yet to be made into a row."""

    step: int
    segment: int
    at: float
    numbers: Mapping[str, Number]


class RowTurns:
    """A lock for making rows, with a queue of logged metrics.

    A signal handler runs in the thread that it interrupts, so a reentrant lock lets it in while
    that thread is making a row. What it logs is left in the queue for the interrupted code.
    """

    def __init__(self, make: Callable[[Logged], None]) -> None:
        self._make = make
        self._waiting: deque[Logged] = deque()
        self._turn = threading.RLock()
        self._is_making = False

    @contextmanager
    def turn(self) -> Generator[None]:
        """Make a step's row inside this block. Afterwards, what was logged meanwhile is made."""
        has_turn = self._turn.acquire(timeout=_PATIENCE_S)
        was_making, self._is_making = self._is_making, True
        try:
            yield
        finally:
            self._is_making = was_making
            if has_turn:
                self._turn.release()
            self.make_waiting()

    def put(self, logged: Logged) -> None:
        """Make a row of logged metrics now, or after the row that is being made."""
        self._waiting.append(logged)
        self.make_waiting()

    def make_waiting(self) -> None:
        """Make the rows that are queued by now, and no later ones: a thread that logs faster than
        rows are made must not keep this one here."""
        if not self._waiting or not self._turn.acquire(timeout=_PATIENCE_S):
            return
        try:
            if not self._is_making:
                self._make_those_by_now()
        finally:
            self._turn.release()

    def _make_those_by_now(self) -> None:
        self._is_making = True
        try:
            for _ in range(len(self._waiting)):
                self._make(self._waiting.popleft())
        finally:
            self._is_making = False
