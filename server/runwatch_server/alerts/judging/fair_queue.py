"""A queue in which runs share one worker fairly, however much each of them asks for."""

import heapq
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from runwatch.vocabulary import RunId

T = TypeVar("T")

_FEW: Final = 64
"""Number of runs whose use is remembered without looking whether it still counts."""


class _Entry(NamedTuple, Generic[T]):
    begins: float
    number: int
    """Decides between entries that begin together: first come, first served."""
    run_id: RunId
    work: T


class FairQueue(Generic[T]):
    """Start-time fair queuing (Goyal, Vin and Cheng, SIGCOMM 1996). A work begins, in virtual
    seconds, where its run's last one ended, or now if that is in the past, and the work that begins
    first is next. So a run that has used little comes before those that have used much, and a run
    that was quiet has no claim to what it did not use."""

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._numbers = count()
        self._now_s = 0.0
        self._ends_s: dict[RunId, float] = {}
        """The end of each run's last work; may lack the runs for which it is in the past."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_remembered(self) -> int:
        """Number of runs whose use is remembered."""
        return len(self._ends_s)

    def put(self, run_id: RunId, work: T) -> None:
        begins = max(self._now_s, self._ends_s.get(run_id, 0.0))
        heapq.heappush(self._entries, _Entry(begins, next(self._numbers), run_id, work))

    def take(self) -> tuple[RunId, T]:
        """The next work. Raises IndexError if there is none."""
        entry = heapq.heappop(self._entries)
        self._now_s = entry.begins
        return entry.run_id, entry.work

    def charge(self, run_id: RunId, seconds: float) -> None:
        """Count what a run's work took, the one taken last."""
        if not self._entries:  # nobody waited, so nobody has got more than a fair share
            self._ends_s.clear()
            return
        self._ends_s[run_id] = max(self._now_s, self._ends_s.get(run_id, 0.0)) + seconds
        if len(self._ends_s) > _FEW + 2 * len(self._entries):
            self._ends_s = {run: end for run, end in self._ends_s.items() if end > self._now_s}
