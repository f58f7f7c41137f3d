"""Periodic jobs: rollups, packing, retention, saving the last uses of keys, removing dead keys.

APScheduler holds the jobs in memory; they are registered at each start. By default it skips a job
that comes a second late (`misfire_grace_time`), which after a pause would be most of them: here
none is skipped, and the missed turns of a job are run once. It sleeps by the wall clock, so no job
here may have a deadline. A loop on the monotonic clock wakes it, since otherwise a clock that is
set back would stop all jobs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol, cast

from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-untyped]
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]

from runwatch_server.auth import queries as auth_queries
from runwatch_server.auth import session_queries
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.replicas.assembly import Replica
from runwatch_server.replicas.ownership import Job, as_duty
from runwatch_server.retention.service import Retention
from runwatch_server.runs.lost_runs import LostRuns
from runwatch_server.runs.purge import purge_orphans
from runwatch_server.settings import Settings
from runwatch_server.telemetry.histogram_store import remove_crowded_histograms
from runwatch_server.telemetry.packs.packing import Packer
from runwatch_server.telemetry.roller import Roller

log = logging.getLogger(__name__)

_DAY_S: Final = 86_400.0
_DEAD_KEYS_DAYS: Final = 90
"""A revoked or expired key stays in the list this long, so that people see what became of it."""
_WAKE_S: Final = 30.0
_SAVE_USES_S: Final = 60.0
_GIVE_BACK_S: Final = 5.0
"""Seconds until the disk has what a removal freed, whoever removed what."""


class _Scheduler(Protocol):
    """The part of APScheduler that we use; the package has no types."""

    def add_job(
        self,
        func: Callable[[], Awaitable[object]],
        trigger: str,
        *,
        seconds: float,
        id: str,
        name: str,
    ) -> object: ...
    def start(self) -> None: ...
    def wakeup(self) -> None: ...
    def shutdown(self, wait: bool) -> None: ...


def _new_scheduler() -> _Scheduler:
    scheduler: Any = AsyncIOScheduler(
        jobstores={"default": MemoryJobStore()},
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        timezone="UTC",
    )
    return cast(_Scheduler, scheduler)


class Maintenance:
    """Owns the scheduler; `run` until cancelled."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        database: Database,
        *,
        roller: Roller,
        packer: Packer | None,
        retention: Retention,
        lost_runs: LostRuns,
        save_uses: Callable[[], Awaitable[None]],
        replica: Replica,
    ) -> None:
        self._replica = replica
        self._settings = settings
        self._clock = clock
        self._database = database
        self._roller = roller
        self._packer = packer
        self._retention = retention
        self._lost_runs = lost_runs
        self._save_uses = save_uses

    async def run(self) -> None:
        scheduler = _new_scheduler()
        for name, job, every_s in self._jobs():
            turn = _turn(name, job)
            scheduler.add_job(turn, "interval", seconds=every_s, id=name, name=name)
        scheduler.start()
        try:
            while True:
                await asyncio.sleep(_WAKE_S)
                scheduler.wakeup()
        finally:
            scheduler.shutdown(wait=False)

    def _jobs(self) -> Iterator[tuple[str, Job, float]]:
        """Name, job and interval in seconds."""
        ownership, settings = self._replica.ownership, self._settings
        yield "rollups", as_duty(ownership, "rollups", self._roller.roll), settings.rollup_every_s
        yield "key uses", self._save_uses, _SAVE_USES_S
        yield "free space", self._database.give_back, _GIVE_BACK_S
        yield "cleaning", as_duty(ownership, "cleaning", self.clean), settings.maintain_every_s
        if self._packer is not None:
            pack = as_duty(ownership, "packing", self._packer.run)
            yield "packing", pack, settings.maintain_every_s

    async def clean(self) -> None:
        """Ends runs that were lost long ago, and removes data past its retention and the rest of
        runs whose removal was interrupted."""
        now = self._clock.wall()
        if self._replica.leases is not None:
            await self._replica.leases.clean(older_than_s=_DAY_S)
        num_lost = await self._lost_runs.end_old()
        num_runs = await purge_orphans(self._database)
        removed = await self._retention.remove_due()
        num_crowded = await remove_crowded_histograms(self._database)
        num_keys = await self._database.write(
            lambda connection: auth_queries.delete_dead_keys(
                connection, now - _DEAD_KEYS_DAYS * _DAY_S
            )
        )
        await self._database.write(
            lambda connection: session_queries.delete_expired_sessions(connection, now)
        )
        log.info(
            "removed %d frames, %d rollups, histograms of %d steps, %d dead keys, and the remains "
            "of %d runs; ended %d lost runs",
            removed.num_frames,
            removed.num_rollups,
            removed.num_histograms + num_crowded,
            num_keys,
            num_runs,
            num_lost,
        )


def _turn(name: str, job: Job) -> Job:
    """One turn of the job, skipped while the database is away, and left where it is as the service
    stops; APScheduler logs any other error."""

    async def run() -> None:
        try:
            await job()
        except OverloadedError as error:
            log.warning("%s: %s; done in its next turn", name, error)
        except asyncio.CancelledError:  # APScheduler takes this for an error, too
            log.info("%s: stopped in the middle; done in its next turn", name)

    return run
