"""How much each project has stored, and the most that it may store.

One project must not fill the disk on which the others store, too. What is stored is measured in the
database every few minutes, and as soon as a run was removed; what is taken in between is added as
it arrives. So a project may go beyond its quota by what other replicas take, until the next
measurement; and what retention has removed counts until then.
"""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Final

import sqlalchemy as sa

from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import events, frames, histograms, layouts, rollups

log = logging.getLogger(__name__)

_RETRY_S: Final = 15
_EVERY_S: Final = 300.0
_LEAST_S: Final = 1.0
_OF_TIME: Final = 20.0
"""It measures for at most a twentieth of the time."""


def _bytes_of(*columns: sa.Column[bytes] | sa.Column[str]) -> sa.ColumnElement[int]:
    return sum((sa.func.length(column) for column in columns), sa.literal(0))


_STORED: Final = (
    (frames, _bytes_of(frames.c.body)),
    (packs, packs.c.num_bytes + _bytes_of(packs.c.contents)),
    (rollups, _bytes_of(rollups.c.data)),
    (histograms, _bytes_of(histograms.c.names, histograms.c.packed)),
    (events, _bytes_of(events.c.detail)),
    (layouts, _bytes_of(layouts.c.document)),
    (runs, _bytes_of(runs.c.config)),
)
"""Without rows' keys and indexes, which are some 200 bytes a row."""


class ProjectQuota:
    """The quota of each project, which is the same for all. In memory: each replica measures."""

    def __init__(self, database: Database, clock: Clock, *, most_bytes: int) -> None:
        """`most_bytes` may be stored of a project; 0: there is no quota, and nothing is
        measured."""
        self.most_bytes = most_bytes
        self._database = database
        self._clock = clock
        self._measured: Counter[str] = Counter()
        self._since: Counter[str] = Counter()
        """Bytes that arrived since the measurement began."""
        self._full: frozenset[str] = frozenset()
        self._was_removed = asyncio.Event()

    @property
    def num_full(self) -> int:
        """Number of projects of which no more is taken."""
        return len(self._full)

    def check(self, project: str) -> None:
        """Raises OverloadedError if the project has stored as much as it may: a trainer keeps what
        it has in its spool, and sends it once there is room."""
        if project in self._full:
            detail = (
                f"The project {project!r} has stored {self.most_bytes >> 20} MiB, the most that a "
                "project may: remove runs, shorten their retention, or raise project_quota_mib."
            )
            raise OverloadedError("project_full", detail, retry_after_s=_RETRY_S)

    def note(self, project: str, num_bytes: int) -> None:
        """Count what was just stored."""
        self._since[project] += num_bytes
        if project not in self._full and self._is_full(project):
            self._judge()

    async def run(self) -> None:
        """Measure again and again."""
        while True:
            self._was_removed.clear()
            began = self._clock.monotonic()
            await self.measure()
            took_s = self._clock.monotonic() - began
            await asyncio.sleep(max(_LEAST_S, _OF_TIME * took_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await self._was_removed.wait()

    def on_removed(self, _: RunId) -> None:
        """What a run had stored no longer counts: it is measured soon."""
        self._was_removed.set()

    async def measure(self) -> None:
        """Find out what all projects have stored."""
        before = self._since.copy()
        measured: Counter[str] = Counter()
        for table, size in _STORED:
            of_project = sa.select(runs.c.project, sa.func.sum(size)).group_by(runs.c.project)
            if table is not runs:
                of_project = of_project.join_from(runs, table, table.c.run_id == runs.c.id)
            async with self._database.read() as connection:
                for project, num_bytes in await connection.execute(of_project):
                    measured[project] += int(num_bytes or 0)
        self._measured, self._since = measured, self._since - before
        self._judge()

    def _is_full(self, project: str) -> bool:
        held = self._measured[project] + self._since[project]
        return 0 < self.most_bytes <= held

    def _judge(self) -> None:
        full = frozenset(filter(self._is_full, self._measured.keys() | self._since.keys()))
        for project in sorted(full ^ self._full):
            told = "refused" if project in full else "taken again"
            log.warning("project %s: frames are %s", project, told)
        self._full = full
