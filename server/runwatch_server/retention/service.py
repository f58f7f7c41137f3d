"""Carries out retention, chunk by chunk, and lists beforehand what it would remove.

Each chunk is a transaction of its own that checks again whether the run's data is still due, so
that a pin holds from the moment it is set, whichever replica is cleaning. A stream's mark of what
it has received without a gap stays: a frame that was removed here and is sent again counts as a
duplicate.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.retention import queries
from runwatch_server.retention.ages import Ages, Due, Why, due_of, kept_of
from runwatch_server.retention.queries import RunAges
from runwatch_server.runs.checks import run_not_found
from runwatch_server.telemetry import retention as telemetry
from runwatch_server.telemetry.histogram_store import remove_histograms

_DAY_S: Final = 86_400.0
_RUNS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Removed:
    """The amounts that a round has removed."""

    num_frames: int = 0
    num_rollups: int = 0
    num_histograms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How long a run's data is kept."""

    in_force: Ages
    own: Ages
    inherited: Ages
    """The ages where the run sets none of its own: its project's, or else the service's."""
    pinned: bool


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run of which the next round removes something."""

    run: RunAges
    frames: telemetry.Amount
    rollups: telemetry.Amount
    histograms: telemetry.Amount

    @property
    def any(self) -> bool:
        return any(part.number for part in (self.frames, self.rollups, self.histograms))


@dataclass(frozen=True, slots=True)
class HeldFrames:
    """Frames that are old enough to go and stay all the same."""

    run: RunAges
    why: Why
    frames: telemetry.Amount
    until: float | None = None
    """In Unix seconds; None: nothing ends it by itself, or not at a known time."""


class Retention:
    def __init__(self, database: Database, clock: Clock, service_ages: Ages) -> None:
        self._database = database
        self._clock = clock
        self.service_ages = service_ages
        """In force where neither run nor project sets anything else; without nulls."""
        self._looks = PerRunTasks("looking for its data that is due")
        self._tasks = PerRunTasks("removing its data that is due")

    async def projects(self) -> dict[str, Ages]:
        async with self._database.read() as connection:
            return await queries.list_projects(connection)

    async def set_project(self, project: str, ages: Ages, *, by: str) -> None:
        """`by` is the actor for the audit."""
        entry = self._audit_entry(by, project, project, ages)

        async def work(connection: AsyncConnection) -> None:
            await queries.put_project(connection, project, ages)
            await append_entry(connection, entry)

        await self._database.write(work)

    async def standing(self, run_id: RunId) -> Standing:
        """Raises NotFoundError."""
        async with self._database.read() as connection:
            run = await _existing(connection, run_id)
        return self._standing(run)

    async def set_run(
        self, run_id: RunId, *, ages: Ages | None, pinned: bool | None, by: str
    ) -> Standing:
        """None leaves a value as it is; `by` is the actor for the audit. Raises NotFoundError."""

        async def work(connection: AsyncConnection) -> Standing:
            run = await _existing(connection, run_id)
            own = run.own if ages is None else ages
            is_pinned = run.pinned if pinned is None else pinned
            await queries.put_run(connection, run_id, own, pinned=is_pinned)
            entry = self._audit_entry(by, run_id, run.project, own, run_id, pinned=is_pinned)
            await append_entry(connection, entry)
            return self._standing(replace(run, own=own, pinned=is_pinned))

        return await self._database.write(work, of=run_id)

    async def list_due(self, *, project: str | None, limit: int) -> list[DueRun]:
        """What the next round will remove, run by run."""
        found: list[DueRun] = []
        async for due_run in self._due_runs(project):
            found.append(due_run)
            if len(found) == limit:
                break
        return found

    async def list_held(self, *, project: str | None, limit: int) -> list[HeldFrames]:
        """What stays although its age has come, and why."""
        async with self._database.read() as connection:
            lost = await queries.list_lost(connection, limit=limit, project=project)
            of_lost = [
                HeldFrames(run, Why.LOST, await telemetry.held_frames(connection, run.run_id))
                for run in lost
            ]
        found = [held for held in of_lost if held.frames.number]
        async for run in self._ended_runs(project):
            if len(found) >= limit:
                break
            found += await self._looks.do(run.run_id, partial(self._held, run)) or []
        return found[:limit]

    async def _held(self, run: RunAges) -> list[HeldFrames]:
        due = self._due(replace(run, pinned=False))
        if not due.raw:
            return []
        async with self._database.read() as connection:
            held = await telemetry.held_frames(connection, run.run_id)
            if run.pinned:
                return [HeldFrames(run, Why.PINNED, held)] if held.number else []
            goes = [
                await telemetry.removable_frames(connection, run.run_id, with_evidence=all_of_it)
                for all_of_it in (due.evidence, True)
            ]
        evidence_days = kept_of(self._standing(run).in_force).evidence_days
        until = (
            None if math.isinf(evidence_days) else (run.ended_at or 0.0) + evidence_days * _DAY_S
        )
        parts = [
            HeldFrames(run, Why.EVIDENCE, goes[1].without(goes[0]), until),
            HeldFrames(run, Why.NOT_SUMMED_UP, held.without(goes[1])),
        ]
        return [part for part in parts if part.frames.number]

    async def remove_due(self) -> Removed:
        """One round, over all runs."""
        num_frames = num_rollups = num_histograms = 0
        async for due_run in self._due_runs(None):
            run_id = due_run.run.run_id
            removed = await self._tasks.do(run_id, partial(self._remove_all, run_id)) or Removed()
            num_frames += removed.num_frames
            num_rollups += removed.num_rollups
            num_histograms += removed.num_histograms
        return Removed(num_frames, num_rollups, num_histograms)

    async def _remove_all(self, run_id: RunId) -> Removed:
        """Removes everything due of one run."""
        num_frames = await self._remove(run_id, self._packs)
        num_frames += await self._remove(run_id, self._frames)
        num_rollups = await self._remove(run_id, self._rollups)
        return Removed(num_frames, num_rollups, await self._remove(run_id, self._histograms))

    async def _due_runs(self, project: str | None) -> AsyncIterator[DueRun]:
        """Found in read transactions: most old runs have nothing left, and need no write."""
        async for run in self._ended_runs(project):
            due = self._due(run)
            look = partial(self._due_run, run, due)
            due_run = await self._looks.do(run.run_id, look) if due.any else None
            if due_run is not None and due_run.any:
                yield due_run

    async def _ended_runs(self, project: str | None) -> AsyncIterator[RunAges]:
        after: RunId | None = None
        while True:
            async with self._database.read() as connection:
                page = await queries.list_ended(
                    connection, after=after, limit=_RUNS_AT_ONCE, project=project
                )
            for run in page:
                yield run
            if len(page) < _RUNS_AT_ONCE:
                return
            after = page[-1].run_id

    async def _due_run(self, run: RunAges, due: Due) -> DueRun:
        none, run_id = telemetry.Amount(), run.run_id
        async with self._database.read() as connection:
            return DueRun(
                run,
                await telemetry.removable_frames(connection, run_id, with_evidence=due.evidence),
                await telemetry.removable_rollups(connection, run_id) if due.rollups else none,
                await telemetry.removable_histograms(connection, run_id) if due.raw else none,
            )

    async def _remove(
        self,
        run_id: RunId,
        remove_chunk: Callable[[AsyncConnection, RunId, Due], Awaitable[int]],
    ) -> int:
        async def work(connection: AsyncConnection) -> int:
            run = await queries.find_run_ages(connection, run_id)
            due = Due() if run is None else self._due(run)
            return await remove_chunk(connection, run_id, due) if due.any else 0

        removed = 0
        while number := await self._database.write(work, of=run_id):
            removed += number
        return removed

    async def _packs(self, connection: AsyncConnection, run_id: RunId, due: Due) -> int:
        return await telemetry.remove_packs(
            connection, run_id, with_evidence=due.evidence, now=self._clock.wall()
        )

    async def _frames(self, connection: AsyncConnection, run_id: RunId, due: Due) -> int:
        return await telemetry.remove_frames(connection, run_id, with_evidence=due.evidence)

    async def _rollups(self, connection: AsyncConnection, run_id: RunId, due: Due) -> int:
        return await telemetry.remove_rollups(connection, run_id) if due.rollups else 0

    async def _histograms(self, connection: AsyncConnection, run_id: RunId, due: Due) -> int:
        return await remove_histograms(connection, run_id) if due.raw else 0

    def _due(self, run: RunAges) -> Due:
        if run.ended_at is None:
            return Due()
        age_days = (self._clock.wall() - run.ended_at) / _DAY_S
        return due_of(self._standing(run).in_force, age_days=age_days, is_pinned=run.pinned)

    def _standing(self, run: RunAges) -> Standing:
        inherited = run.of_project.over(self.service_ages)
        return Standing(run.own.over(inherited), run.own, inherited, run.pinned)

    def _audit_entry(
        self,
        by: str,
        subject: str,
        project: str,
        ages: Ages,
        about_run: RunId | None = None,
        **facts: object,
    ) -> AuditEntry:
        detail = {name: getattr(ages, name) for name in Ages.__struct_fields__}
        return AuditEntry(
            at=self._clock.wall(),
            actor=by,
            deed="retention_set",
            subject=subject,
            project=project,
            about_run=about_run,
            detail={**detail, **facts},
        )


async def _existing(connection: AsyncConnection, run_id: RunId) -> RunAges:
    """Raises NotFoundError."""
    run = await queries.find_run_ages(connection, run_id)
    if run is None:
        raise run_not_found(run_id)
    return run
