"""Tells all caches that a run was removed, so that they drop what they hold under its id.

A trainer that goes on, or is started again, may bring a run back under the same id. That is a new
run: it has no layouts, attempts or commands yet, and its first frame is number 1.
"""

from collections.abc import Callable, Iterable
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.runs.queries import OpenRun

_MAX_KNOWN: Final = 10_000

Forget = Callable[[RunId], None]


class Removals:
    """Caches register with `on`. Dropping too much costs only a query, so they are told whenever a
    run may have been replaced."""

    def __init__(self, announce: Forget = lambda _: None) -> None:
        """`announce` notifies the other replicas."""
        self._announce = announce
        self._listeners: list[Forget] = []
        self._created_at: dict[RunId, float] = {}

    def on(self, *listeners: Forget) -> None:
        self._listeners += listeners

    def announce(self, run_id: RunId) -> None:
        """Notifies the listeners here and those of the other replicas."""
        self.forget(run_id)
        self._announce(run_id)

    def forget(self, run_id: RunId) -> None:
        for forget in self._listeners:
            forget(run_id)

    async def on_removed(self, run_ids: frozenset[RunId] | None) -> None:
        """Another replica has removed these runs; None: any of them, which
        `detect_replaced` finds out."""
        for run_id in run_ids or ():
            self.forget(run_id)

    def detect_replaced(self, open_runs: Iterable[OpenRun]) -> None:
        """Announces here the runs created since the last call under an id known before."""
        for run in open_runs:
            if self._created_at.pop(run.id, run.created_at) != run.created_at:
                self.forget(run.id)
            self._created_at[run.id] = run.created_at  # moved to the end: the first goes first
        for run_id in list(self._created_at)[:-_MAX_KNOWN]:
            del self._created_at[run_id]
