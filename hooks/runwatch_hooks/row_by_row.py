"""One row is made at a time. What is logged meanwhile, by a thread that evaluates or by a signal's
handler, follows it: to make a row in the middle of another would tear both."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from runwatch_hooks.seeing.numbers import Number

_PATIENCE_S: Final = 1.0
"""Another thread has the turn for some microseconds. This one may have it itself, where a signal's
handler makes a step in the middle of `log`: then the step's row is made all the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A row of the user's numbers alone, yet to be made."""

    step: int
    segment: int
    at: float
    numbers: Mapping[str, Number]


class RowByRow:
    """Whose turn it is to make a row."""

    def __init__(self, make: Callable[[Logged], None]) -> None:
        self._make = make
        self._waiting: deque[Logged] = deque()
        self._turn = threading.Lock()

    def begin(self) -> bool:
        """A step's row is about to be made: whether the turn was taken, for `end` to give back."""
        return self._turn.acquire(timeout=_PATIENCE_S)

    def end(self, *, has_turn: bool) -> None:
        """It is made; what was logged meanwhile is next."""
        if has_turn:
            self._turn.release()
        self.make_waiting()

    def put(self, logged: Logged) -> None:
        """Made at once, or by whoever is making a row now."""
        self._waiting.append(logged)
        self.make_waiting()

    def make_waiting(self) -> None:
        """Make the rows that wait, unless another one is being made."""
        while self._waiting and self._turn.acquire(blocking=False):
            try:
                while self._waiting:
                    self._make(self._waiting.popleft())
            finally:
                self._turn.release()
