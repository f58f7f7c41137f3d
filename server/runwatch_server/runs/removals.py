"""Who is told that a run was removed: what is remembered of it by its id holds no longer.

A trainer that goes on, or is started again, may bring a run back under the same id. That is another
run: it has no layouts, no attempts and no commands yet, and its first frame is number 1.
"""

from collections.abc import Callable, Iterable
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.runs.queries import OpenRun

_MAX_KNOWN: Final = 10_000

Forget = Callable[[RunId], None]


class Removals:
    """`on` for those who remember something of runs. Forgetting too much costs them a question to
    the database, so all are told whenever a run may be another."""

    def __init__(self, announce: Forget = lambda _: None) -> None:
        """`announce` tells the other replicas."""
        self._announce = announce
        self._listeners: list[Forget] = []
        self._created_at: dict[RunId, float] = {}

    def on(self, *listeners: Forget) -> None:
        self._listeners += listeners

    def tell(self, run_id: RunId) -> None:
        """Here and at the other replicas."""
        self.tell_here(run_id)
        self._announce(run_id)

    def tell_here(self, run_id: RunId) -> None:
        for forget in self._listeners:
            forget(run_id)

    async def hear(self, run_ids: frozenset[RunId] | None) -> None:
        """Another replica has removed these; None: it may have been any, which `follow` finds."""
        for run_id in run_ids or ():
            self.tell_here(run_id)

    def follow(self, open_runs: Iterable[OpenRun]) -> None:
        """Tells of those that are other runs than the last time: they were created since."""
        for run in open_runs:
            if self._created_at.pop(run.id, run.created_at) != run.created_at:
                self.tell_here(run.id)
            self._created_at[run.id] = run.created_at  # last in order: the first goes first
        for run_id in list(self._created_at)[:-_MAX_KNOWN]:
            del self._created_at[run_id]
