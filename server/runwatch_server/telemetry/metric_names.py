"""How many names of metrics a run may have: a program that puts its step into them has a new one
each step, and every list of them, every chart and every judgement would pay for it."""

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
    """Of each run at most so many; of frames under way at once there may be a few more."""

    def __init__(self, database: Database, *, most: int) -> None:
        self._database = database
        self._most = most
        self._refused: dict[tuple[RunId, tuple[str, ...]], frozenset[str]] = {}
        """By the names that a frame brought; stored is what is not refused."""
        self._told: set[RunId] = set()

    def forget(self, run_id: RunId) -> None:
        """The run was removed: what comes under its id has told no metrics yet."""
        self._refused = {key: names for key, names in self._refused.items() if key[0] != run_id}
        self._told.discard(run_id)

    def are_stored(self, run_id: RunId, names: tuple[str, ...]) -> bool:
        """Whether all these are known to be there."""
        return self._refused.get((run_id, names)) == frozenset()

    async def refused(self, run_id: RunId, names: tuple[str, ...]) -> frozenset[str]:
        """Those of a frame's names that are too many for its run."""
        known = self._refused.get((run_id, names))
        if known is not None:
            return known
        async with self._database.read() as connection:
            return _too_many(await list_metrics(connection, run_id), names, self._most)

    def remember(self, run_id: RunId, names: tuple[str, ...], refused: frozenset[str]) -> None:
        """A frame with these names is stored, but for those refused."""
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
        """What is to be told on the run's timeline; nothing where it was told before."""
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
    """The frame but for some of its metrics."""
    kept = [column for column, name in enumerate(frame.metric_names) if name not in refused]
    names = tuple(frame.metric_names[column] for column in kept)
    return replace(frame, metric_names=names, metrics=frame.metrics[:, kept])


def _too_many(known: Collection[str], names: Sequence[str], most: int) -> frozenset[str]:
    held = set(known)
    new = [name for name in names if name not in held]
    return frozenset(new[max(most - len(known), 0) :])
