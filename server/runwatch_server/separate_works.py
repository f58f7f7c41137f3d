"""Works of one round that are each about another run: one that fails, by a damaged row of its run,
must not keep the others from being done."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from runwatch.vocabulary import RunId
from runwatch_server.errors import OverloadedError
from runwatch_server.objects import ObjectsAwayError

log = logging.getLogger(__name__)

T = TypeVar("T")

_OF_ALL: Final = (OverloadedError, ObjectsAwayError)
"""The database or the object store is away: that is no matter of one run, and ends the round."""


class SeparateWorks:
    """What one kind of round does. A failure is logged once, until the work succeeds again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failing: set[tuple[RunId, str]] = set()

    @property
    def failing(self) -> frozenset[RunId]:
        """The runs of which something failed the last time."""
        return frozenset(run_id for run_id, _ in self._failing)

    async def do(
        self, run_id: RunId, work: Callable[[], Awaitable[T]], *, part: str = ""
    ) -> T | None:
        """What the work gives; None where it fails. `part` says of what of the run it is, where
        that has several. Raises OverloadedError, ObjectsAwayError."""
        key = (run_id, part)
        try:
            done = await work()
        except _OF_ALL:
            raise
        except Exception:  # whatever is wrong with this run, the others' turn comes
            if key not in self._failing:
                what = f"{part}: {self._what}" if part else self._what
                log.exception("run %s: %s failed; tried again in each round", run_id, what)
            self._failing.add(key)
            return None
        self._failing.discard(key)
        return done

    def forget(self, run_id: RunId) -> None:
        """Its turn does not come here any more."""
        self._failing = {key for key in self._failing if key[0] != run_id}
