"""Runs a round of tasks, one per run, so that a failing one does not stop the others.

A task may fail because a row of its run is damaged, for example.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from runwatch.vocabulary import RunId
from runwatch_server.errors import OverloadedError
from runwatch_server.objects import ObjectsAwayError

log = logging.getLogger(__name__)

T = TypeVar("T")

_OF_ALL: Final = (OverloadedError, ObjectsAwayError)
"""The database or the object store is away: this affects all runs, so it ends the round."""


class PerRunTasks:
    """The tasks of one kind of round. A failure is logged once, until the task succeeds again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failing: set[tuple[RunId, str]] = set()

    @property
    def failing(self) -> frozenset[RunId]:
        """The runs with a task that failed in its last round."""
        return frozenset(run_id for run_id, _ in self._failing)

    async def do(
        self, run_id: RunId, work: Callable[[], Awaitable[T]], *, part: str = ""
    ) -> T | None:
        """The task's result; None if it fails.

        `part` names the part of the run, where it has several. Raises OverloadedError,
        ObjectsAwayError.
        """
        key = (run_id, part)
        try:
            done = await work()
        except _OF_ALL:
            raise
        except Exception:  # whatever is wrong with this run, the others must have their turn
            if key not in self._failing:
                what = f"{part}: {self._what}" if part else self._what
                log.exception("run %s: %s failed; tried again in each round", run_id, what)
            self._failing.add(key)
            return None
        self._failing.discard(key)
        return done

    def forget(self, run_id: RunId) -> None:
        """Drops a run that this round no longer handles."""
        self._failing = {key for key in self._failing if key[0] != run_id}
