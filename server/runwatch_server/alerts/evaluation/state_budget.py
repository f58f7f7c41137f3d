"""One budget in bytes for what the evaluators of all runs remember.

A run of 20,000 layers takes 150 MB, and whoever may send can have as many of them as they like. So
a run is loaded only when there is room for it; otherwise one that has nothing to judge is dropped
first, its state saved, or it waits.
"""

from typing import NamedTuple

from runwatch.vocabulary import RunId
from runwatch_server.telemetry.frame_budget import Share


class Needs(NamedTuple):
    """What a run takes once it is loaded."""

    project: str
    num_bytes: int


class StateBudget:
    """Each project has half of what is left to it and the others at most, as with frames."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._share = Share(most_bytes)
        self._held: dict[RunId, Needs] = {}

    @property
    def used_bytes(self) -> int:
        return self._share.used_bytes

    @property
    def largest(self) -> str | None:
        """The project that takes most; None if none does."""
        by_project = self._share.by_owner
        return max(by_project, key=by_project.__getitem__, default=None)

    def holds(self, run_id: RunId) -> bool:
        return run_id in self._held

    def project_of(self, run_id: RunId) -> str | None:
        held = self._held.get(run_id)
        return None if held is None else held.project

    def fits(self, needs: Needs) -> bool:
        """Whether there is room for a run. One that takes more than half is taken for half, or it
        would never be loaded."""
        return self._share.fits(needs.project, min(needs.num_bytes, self._most_bytes // 2))

    def hold(self, run_id: RunId, needs: Needs) -> None:
        """Count a run, or count it anew: what it takes is known once it is loaded."""
        self.drop(run_id)
        self._share.take(*needs)
        self._held[run_id] = needs

    def drop(self, run_id: RunId) -> None:
        """A run is no longer in memory."""
        needs = self._held.pop(run_id, None)
        if needs is not None:
            self._share.give_back(*needs)
