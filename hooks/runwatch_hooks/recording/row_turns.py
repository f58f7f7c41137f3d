"""One row is made at a time. What is logged meanwhile, by a thread that evaluates or by a signal's
handler, follows it: to make a row in the middle of another would tear both."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from runwatch_hooks.seeing.numbers import Number

_PATIENCE_S: Final = 1.0
"""Another thread has the turn for some microseconds; training does not wait for one that hangs."""


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A row of the user's numbers alone, yet to be made."""

    step: int
    segment: int
    at: float
    numbers: Mapping[str, Number]


class RowByRow:
    """Whose turn it is to make a row.

    A signal's handler runs in the midst of what its thread does, and may take a turn that this has:
    what it logs is left to whoever makes the row that it interrupted.
    """

    def __init__(self, make: Callable[[Logged], None]) -> None:
        self._make = make
        self._waiting: deque[Logged] = deque()
        self._turn = threading.RLock()
        self._is_making = False

    @contextmanager
    def turn(self) -> Generator[None]:
        """A step's row is made within; what was logged meanwhile is next."""
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
        """Made at once, or after the row that is being made."""
        self._waiting.append(logged)
        self.make_waiting()

    def make_waiting(self) -> None:
        """Make the rows that wait by now: who logs faster than rows are made keeps nobody here."""
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
