"""Measures the CPU time that the hook takes in the training thread."""

import time
from collections.abc import Callable


class Meter:
    """A context manager that adds up the time of its blocks, which must not be nested.

    It measures the thread's CPU time, not wall time, which would include interruptions by other
    programs.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._since = 0.0
        self._spent_s = 0.0

    def __enter__(self) -> None:
        self._since = self._clock()

    def __exit__(self, *_: object) -> None:
        self._spent_s += self._clock() - self._since

    def take(self) -> float:
        """Seconds since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s
