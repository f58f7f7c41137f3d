"""Limits the number of a run's metric names.

A program that puts its step into names creates a new one at each step, which would slow down every
list, every chart and the evaluation of rules.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from runwatch.frames import Event, Frame
from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.telemetry.queries import list_metrics

log = logging.getLogger(__name__)

_MAX_CACHED: Final = 10_000
_MOST_NAMED: Final = 5


class MetricNames:
    """Allows at most `most` names per run; frames that are handled at once may add a few more."""

    def __init__(self, database: Database, *, most: int) -> None:
        self._database = database
        self._most = most
        self._refused: dict[tuple[RunId, tuple[str, ...]], frozenset[str]] = {}
        """For each set of names that a frame brought, those refused; the others are stored."""
        self._told: set[RunId] = set()

    def forget(self, run_id: RunId) -> None:
        """Drop a deleted run's names: a new run under its id has no metrics yet."""
        self._refused = {key: names for key, names in self._refused.items() if key[0] != run_id}
        self._told.discard(run_id)

    def are_stored(self, run_id: RunId, names: tuple[str, ...]) -> bool:
        """Whether all these names are known to be stored."""
        return self._refused.get((run_id, names)) == frozenset()

    async def refused(self, run_id: RunId, names: tuple[str, ...]) -> frozenset[str]:
        """The names of a frame that exceed its run's limit."""
        known = self._refused.get((run_id, names))
        if known is not None:
            return known
        async with self._database.read() as connection:
            return _too_many(await list_metrics(connection, run_id), names, self._most)

    def remember(self, run_id: RunId, names: tuple[str, ...], refused: frozenset[str]) -> None:
        """Remember that a frame with these names was stored, without those refused."""
        if len(self._refused) >= _MAX_CACHED:
            self._refused.clear()
        kept = tuple(name for name in names if name not in refused)
        self._refused[run_id, names] = refused
        self._refused[run_id, kept] = frozenset()
        if refused:
            self._told.add(run_id)

    def news(
        self, run_id: RunId, frame: Frame, refused: Collection[str], *, at: float
    ) -> tuple[Event, ...]:
        """The event for the run's timeline; none if it was written before."""
        if not refused or run_id in self._told:
            return ()
        named = ", ".join(sorted(refused)[:_MOST_NAMED])
        log.warning(
            "run %s has had %d names of metrics; %d more are left out of its frames: %s",
            run_id,
            self._most,
            len(refused),
            named,
        )
        told = Event(
            step=frame.first_step,
            kind="metrics_refused",
            at=at,
            detail={"names": named, "num_names": len(refused), "most": self._most},
        )
        return (told,)


def without(frame: Frame, refused: Collection[str]) -> Frame:
    """The frame without some of its metrics."""
    kept = [column for column, name in enumerate(frame.metric_names) if name not in refused]
    names = tuple(frame.metric_names[column] for column in kept)
    return replace(frame, metric_names=names, metrics=frame.metrics[:, kept])


def _too_many(known: Collection[str], names: Sequence[str], most: int) -> frozenset[str]:
    held = set(known)
    new = [name for name in names if name not in held]
    return frozenset(new[max(most - len(known), 0) :])
