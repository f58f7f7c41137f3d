"""Leases: each run is judged by one replica, until that one stops renewing its lease.

A lease is a row with an owner, an epoch and an end by the database's clock. Its owner renews it
every few seconds. One that was killed, paused or cut off does not, and another replica takes over
the run with the next epoch. Time alone excludes nobody: a replica that was paused still believes in
its lease when it continues. So every write of judging checks owner and epoch in its own transaction
(`check`), and the writes of a former owner fail.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.cancellation import run_together
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ServiceError
from runwatch_server.replicas import queries
from runwatch_server.replicas.ownership import NotOwnerError

log = logging.getLogger(__name__)

LEASE_S: Final = 15.0
RENEW_S: Final = 4.0
_SWEEP_S: Final = 2.0
"""Seconds between looks for runs without an owner."""
_SWEEPS_PER_FULL: Final = 30
"""One of this many sweeps, the first included, also looks for unjudged frames of runs that have
ended: it reads the streams of all runs that there ever were. Only if the one who took such a frame
was killed at once does nobody own its run."""
_FOREIGN_S: Final = 2.0
"""Seconds for which a run that another replica owns is not asked for again."""
_MOST_AT_ONCE: Final = 100
"""Most runs taken in one sweep, so that the others share what a replica leaves behind."""


class Owner(Protocol):
    """The interface of what judges the runs that are owned."""

    async def gained(self, run_id: RunId) -> None: ...
    def lost(self, run_id: RunId) -> None: ...
    async def can_release(self, run_id: RunId) -> bool:
        """Whether nothing is left to do for a run that needs no owner; its state is then saved."""
        ...


class RunLeases:
    """Owns runs on behalf of one replica; `run` until cancelled, then `release`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        replica: str,
        *,
        notify_owner: Callable[[RunId], None],
    ) -> None:
        self.replica = replica
        self._database = database
        self._clock = clock
        self._tell_owner = notify_owner
        self._owner: Owner | None = None
        self._epochs: dict[str, int] = {}
        self._duties: set[str] = set()
        self._renewed_at: float = clock.monotonic()
        self._num_sweeps = 0
        self._foreign: dict[RunId, float] = {}
        self._wanted: set[RunId] = set()
        self._is_wanted = asyncio.Event()

    @property
    def num_held(self) -> int:
        return len(self._epochs)

    def serve(self, owner: Owner) -> None:
        """Set who is notified of runs that are gained and lost."""
        self._owner = owner

    def owns(self, run_id: RunId) -> bool:
        age_s = self._clock.monotonic() - self._renewed_at
        return run_id in self._epochs and age_s < LEASE_S

    def want(self, run_id: RunId) -> None:
        self._wanted.add(run_id)
        self._is_wanted.set()

    async def take(self, duty: str) -> bool:
        self._duties.add(duty)
        return duty in self._epochs or await self._take(duty, None)

    async def check(self, connection: AsyncConnection, run_id: RunId) -> None:
        epoch = self._epochs.get(run_id)
        if epoch is None or not await queries.holds_lease(
            connection, run_id, owner=self.replica, epoch=epoch
        ):
            raise NotOwnerError(f"run {run_id}: another replica looks after it now")

    async def run(self) -> None:
        await run_together(  # if one fails, all end and are restarted
            self._every(RENEW_S, self.renew),
            self._every(_SWEEP_S, self.sweep),
            self._take_wanted(),
        )

    async def renew(self) -> None:
        """Renew the leases held; those that have expired in the meantime are lost."""
        began = self._clock.monotonic()
        held = dict(self._epochs)
        if held:
            work = partial(queries.renew_leases, owner=self.replica, lease_s=LEASE_S)
            renewed = await self._database.write(work)
            self._lose(held.keys() - renewed)
        self._renewed_at = began

    async def sweep(self) -> None:
        """Take runs that have no owner; release those that need none."""
        held = self._epochs.keys() - self._duties  # what is taken meanwhile was not looked for
        async with self._database.read() as connection:
            with_unjudged = self._num_sweeps % _SWEEPS_PER_FULL == 0
            to_own = await queries.list_runs_to_own(connection, with_unjudged=with_unjudged)
        self._num_sweeps += 1
        now = self._clock.monotonic()
        self._foreign = {run_id: until for run_id, until in self._foreign.items() if until > now}
        free = [run_id for run_id, is_held in to_own.items() if not is_held]
        random.shuffle(free)
        for run_id in free[:_MOST_AT_ONCE]:
            await self._take_run(run_id)
        for name in (held & self._epochs.keys()) - to_own.keys():
            if self._owner is not None and await self._owner.can_release(RunId(name)):
                await self._end([name])  # at once: what it sends from now on is asked for anew

    async def release(self) -> None:
        """Release everything, so that others need not wait until the leases expire."""
        await self._despite_overload(partial(self._end, tuple(self._epochs)))

    async def clean(self, *, older_than_s: float) -> None:
        """Delete leases and signs of life that have not been used for long."""
        work = partial(queries.delete_old_leases, older_than_s=older_than_s)
        await self._database.write(work)

    async def _take_wanted(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            wanted, self._wanted = self._wanted, set()
            for run_id in wanted:
                await self._despite_overload(partial(self._take_or_notify, run_id))

    async def _take_or_notify(self, run_id: RunId) -> None:
        if run_id in self._epochs:
            await self._gained(run_id)
            return
        is_foreign = self._foreign.get(run_id, 0.0) > self._clock.monotonic()
        if is_foreign or not await self._take_run(run_id):
            self._tell_owner(run_id)

    async def _take_run(self, run_id: RunId) -> bool:
        is_ours = await self._take(run_id, run_id)
        if is_ours:
            await self._gained(run_id)
        else:
            self._foreign[run_id] = self._clock.monotonic() + _FOREIGN_S
        return is_ours

    async def _take(self, name: str, of: RunId | None) -> bool:
        began = self._clock.monotonic()
        work = partial(queries.take_lease, name=name, owner=self.replica, lease_s=LEASE_S)
        epoch = await self._database.write(work, of=of)
        if epoch is None:
            return False
        if not self._epochs:
            self._renewed_at = began
        self._epochs[name] = epoch
        if epoch > 1:
            log.info("%s: taken over, epoch %d", name, epoch)
        return True

    async def _gained(self, run_id: RunId) -> None:
        self._foreign.pop(run_id, None)
        if self._owner is not None:
            await self._owner.gained(run_id)

    def _lose(self, names: Collection[str]) -> None:
        if names:
            log.warning("%d leases ran out: others may look after these runs now", len(names))
        for name in names:
            self._epochs.pop(name, None)
            if self._owner is not None and name not in self._duties:
                self._owner.lost(RunId(name))

    async def _end(self, names: Collection[str]) -> None:
        if not names:
            return
        for name in names:
            self._epochs.pop(name, None)
        await self._database.write(partial(queries.end_leases, names=names, owner=self.replica))

    async def _every(self, seconds: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._despite_overload(job)
            await asyncio.sleep(seconds)

    async def _despite_overload(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except ServiceError as error:  # unavailable: tried again until the leases expire
            log.warning("leases: %s", error)
