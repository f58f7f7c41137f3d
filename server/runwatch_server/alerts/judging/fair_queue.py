"""Queues in which projects, and the runs of each, share one worker fairly, however much each of
them asks for."""

import heapq
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from runwatch.vocabulary import RunId

K = TypeVar("K")
T = TypeVar("T")

_FEW: Final = 64
"""Number of keys whose use is remembered without looking whether it still counts."""


class _Entry(NamedTuple, Generic[K, T]):
    begins: float
    number: int
    """Decides between entries that begin together: first come, first served."""
    key: K
    work: T


class FairQueue(Generic[K, T]):
    """Start-time fair queuing (Goyal, Vin and Cheng, SIGCOMM 1996) between keys: runs, or projects.
    A work begins, in virtual seconds, where its key's last one ended, or now if that is in the
    past, and the work that begins first is next. So one that has used little comes before those
    that have used much, and one that was quiet has no claim to what it did not use."""

    def __init__(self) -> None:
        self._entries: list[_Entry[K, T]] = []
        self._numbers = count()
        self._now_s = 0.0
        self._ends_s: dict[K, float] = {}
        """The end of each key's last work; may lack those for which it is in the past."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_remembered(self) -> int:
        """Number of keys whose use is remembered."""
        return len(self._ends_s)

    def put(self, key: K, work: T) -> None:
        begins = max(self._now_s, self._ends_s.get(key, 0.0))
        heapq.heappush(self._entries, _Entry(begins, next(self._numbers), key, work))

    def take(self) -> tuple[K, T]:
        """The next work. Raises IndexError if there is none."""
        entry = heapq.heappop(self._entries)
        self._now_s = entry.begins
        return entry.key, entry.work

    def charge(self, key: K, seconds: float) -> None:
        """Count what the work taken last took, which was of this key."""
        if not self._entries:  # nobody waited, so nobody has got more than a fair share
            self._ends_s.clear()
            return
        self._ends_s[key] = max(self._now_s, self._ends_s.get(key, 0.0)) + seconds
        if len(self._ends_s) > _FEW + 2 * len(self._entries):
            self._ends_s = {one: end for one, end in self._ends_s.items() if end > self._now_s}


class Payer(NamedTuple):
    """Whose share a work takes from."""

    project: str
    run_id: RunId


class SharedQueue(Generic[T]):
    """Projects share the worker, and the runs of a project share what it gets: a project with many
    runs delays itself only."""

    def __init__(self) -> None:
        self._projects: FairQueue[str, None] = FairQueue()
        """Each project with waiting works once, except the one whose work was taken last."""
        self._runs: dict[str, FairQueue[RunId, T]] = {}
        self._num_works = 0

    def __len__(self) -> int:
        return self._num_works

    def put(self, payer: Payer, work: T) -> None:
        if payer.project not in self._runs:
            self._runs[payer.project] = FairQueue()
            self._projects.put(payer.project, None)
        self._runs[payer.project].put(payer.run_id, work)
        self._num_works += 1

    def take(self) -> tuple[Payer, T]:
        """The next work; `charge` must follow before the next one. Raises IndexError if there is
        none."""
        project, _ = self._projects.take()
        run_id, work = self._runs[project].take()
        self._num_works -= 1
        return Payer(project, run_id), work

    def charge(self, payer: Payer, seconds: float) -> None:
        """Count what the work taken last took, which was this payer's."""
        of_project = self._runs[payer.project]
        self._projects.charge(payer.project, seconds)
        of_project.charge(payer.run_id, seconds)
        if len(of_project):
            self._projects.put(payer.project, None)
        else:
            del self._runs[payer.project]
