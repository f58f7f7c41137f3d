"""The processor time that the hook takes from the training thread."""

import time
from collections.abc import Callable


class Meter:
    """A block run under it is counted; blocks do not lie within one another.

    CPU time of the thread and not the time on the wall: what other programs take from us in the
    middle of it is not ours.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` gives seconds."""
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
