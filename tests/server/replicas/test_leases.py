"""Leases: one owner at a time, and a former one whose writes come to nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import HandClock

from runwatch.vocabulary import RunId, RunState
from runwatch_server.db import Database
from runwatch_server.db.postgresql import PostgresStore
from runwatch_server.replicas import queries
from runwatch_server.replicas.leases import RunLeases
from runwatch_server.replicas.ownership import NotOwnerError
from runwatch_server.replicas.tables import leases as leases_table
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import streams

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]

RUN = RunId("0" * 26)


@dataclass
class Owned:
    """What a replica was told."""

    gained_runs: list[RunId] = field(default_factory=list[RunId])
    lost_runs: list[RunId] = field(default_factory=list[RunId])
    num_held_when_asked: list[int] = field(default_factory=list[int])
    leases: RunLeases | None = None

    async def gained(self, run_id: RunId) -> None:
        self.gained_runs.append(run_id)

    def lost(self, run_id: RunId) -> None:
        self.lost_runs.append(run_id)

    async def can_release(self, run_id: RunId) -> bool:
        assert self.leases is not None
        self.num_held_when_asked.append(self.leases.num_held)
        return True


@dataclass
class Replica:
    leases: RunLeases
    owned: Owned
    database: Database

    async def check(self) -> None:
        await self.database.write(lambda c: self.leases.check(c, RUN), of=RUN)

    async def execute(self, statement: sa.Executable) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statement)

        await self.database.write(work, of=RUN)

    async def run_out(self) -> None:
        """The lease ends, as if its time had come."""
        await self.execute(leases_table.update().values(expires_at=0.0))


def no_one(_: RunId) -> None:
    """Nobody is told."""


@pytest.fixture
async def replicas(postgres_url: str, hand_clock: HandClock) -> AsyncIterator[list[Replica]]:
    """Two, and a run that goes on."""
    async with (
        Database(PostgresStore(postgres_url)) as one,
        Database(PostgresStore(postgres_url)) as other,
    ):
        made: list[Replica] = []
        for name, database in (("one", one), ("other", other)):
            database.start()
            owned = Owned()
            tell: Callable[[RunId], None] = no_one
            leases = RunLeases(database, hand_clock.clock(), name, notify_owner=tell)
            leases.serve(owned)
            owned.leases = leases
            made.append(Replica(leases, owned, database))
        row = {"id": RUN, "project": "p", "name": "n", "created_at": 0.0, "config": "{}"}
        await made[0].execute(runs.insert().values(**row, state="training", current_attempt=1))
        yield made


async def test_one_of_two_gets_a_run(replicas: list[Replica]) -> None:
    await asyncio.gather(*(replica.leases.sweep() for replica in replicas))

    assert sorted(replica.leases.owns(RUN) for replica in replicas) == [False, True]
    assert [run for replica in replicas for run in replica.owned.gained_runs] == [RUN]


async def test_a_lease_that_ran_out_goes_to_the_other_and_the_former_owner_is_fenced(
    replicas: list[Replica],
) -> None:
    former, heir = replicas
    await former.leases.sweep()
    await former.check()
    await former.run_out()

    await heir.leases.sweep()

    await heir.check()
    with pytest.raises(NotOwnerError, match="another replica looks after it"):
        await former.check()
    await former.leases.renew()
    assert former.owned.lost_runs == [RUN]
    assert heir.owned.lost_runs == []


async def test_an_owner_that_did_not_renew_in_time_does_not_believe_in_its_lease(
    replicas: list[Replica], hand_clock: HandClock
) -> None:
    await replicas[0].leases.sweep()
    assert replicas[0].leases.owns(RUN)

    hand_clock.now += 16.0

    assert not replicas[0].leases.owns(RUN)


async def test_what_is_renewed_stays(replicas: list[Replica], hand_clock: HandClock) -> None:
    former, heir = replicas
    await former.leases.sweep()
    hand_clock.now += 10.0
    await former.leases.renew()
    hand_clock.now += 10.0
    await heir.leases.sweep()

    assert former.leases.owns(RUN)
    assert not heir.leases.owns(RUN)


async def test_a_run_that_needs_nobody_is_let_go(replicas: list[Replica]) -> None:
    owner, other = replicas
    await owner.leases.sweep()
    await owner.execute(runs.update().values(state=RunState.FINISHED.value))

    await owner.leases.sweep()
    await other.leases.sweep()

    assert not owner.leases.owns(RUN)
    assert not other.leases.owns(RUN)


async def test_a_run_is_let_go_before_the_next_one_is_asked_about(
    replicas: list[Replica],
) -> None:
    """Asking takes time, since a state is saved. A frame that came meanwhile of a run that was
    still held, and could be let go, was judged by nobody for a minute."""
    owner, _ = replicas
    row = {"id": "1" * 26, "project": "p", "name": "n", "created_at": 0.0, "config": "{}"}
    await owner.execute(runs.insert().values(**row, state="training", current_attempt=1))
    await owner.leases.sweep()
    await owner.execute(runs.update().values(state=RunState.FINISHED.value))

    await owner.leases.sweep()

    assert owner.owned.num_held_when_asked == [2, 1]


async def test_a_run_that_is_taken_during_a_sweep_is_not_let_go_by_it(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened after the sweep had looked for those that go on."""
    owner, _ = replicas

    async def look_too_early(_: AsyncConnection, **__: bool) -> dict[RunId, bool]:
        monkeypatch.undo()
        await owner.leases.sweep()
        return {}

    monkeypatch.setattr(queries, "list_runs_to_own", look_too_early)
    await owner.leases.sweep()

    assert owner.leases.owns(RUN)


async def test_a_replica_that_leaves_is_followed_at_once(replicas: list[Replica]) -> None:
    await replicas[0].leases.sweep()

    await replicas[0].leases.release()
    await replicas[1].leases.sweep()

    assert replicas[1].leases.owns(RUN)


async def test_a_duty_is_one_replicas(replicas: list[Replica]) -> None:
    assert await replicas[0].leases.take("rollups")
    assert not await replicas[1].leases.take("rollups")
    await replicas[0].leases.sweep()
    assert await replicas[0].leases.take("rollups")


async def test_an_ended_run_with_unjudged_frames_is_found_by_a_full_sweep(
    replicas: list[Replica],
) -> None:
    owner, _ = replicas
    await owner.execute(runs.update().values(state=RunState.FINISHED.value))
    await owner.leases.sweep()
    stream = {"run_id": RUN, "attempt": 1, "rank": 0, "next_seq": 2, "max_seq": 1}
    await owner.execute(streams.insert().values(**stream))

    await owner.leases.sweep()
    assert not owner.leases.owns(RUN)

    for _ in range(29):
        await owner.leases.sweep()
    assert owner.leases.owns(RUN)
