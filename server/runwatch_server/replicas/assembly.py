"""Assembles the parts by which this replica works beside others."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from runwatch_server.background import Loop
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.replicas.broadcasts import Broadcasts, Topic
from runwatch_server.replicas.leases import RunLeases
from runwatch_server.replicas.ownership import Ownership, SoleOwner
from runwatch_server.replicas.shared_signs import SharedSigns
from runwatch_server.runs.liveness import Liveness


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One service among those on its database; `join` makes it."""

    name: str
    """The name of this process's lifetime; a restart gets a new one."""
    broadcasts: Broadcasts
    ownership: Ownership
    leases: RunLeases | None
    """None if there can be no other replica."""
    signs: SharedSigns | None

    def loops(self) -> Iterator[Loop]:
        if self.leases is not None and self.signs is not None:
            yield Loop("leases", self.leases.run)
            yield Loop("signs of life", self.signs.run)
            yield Loop("broadcasts", self.broadcasts.run)


def join(stack: AsyncExitStack, database: Database, clock: Clock, liveness: Liveness) -> Replica:
    """Join the other replicas. Call it before judging is started, so that the stack releases the
    leases after judging has stopped."""
    name = clock.new_ulid()
    broadcasts = Broadcasts(name, database.channel)
    if not database.is_shared:
        return Replica(
            name=name, broadcasts=broadcasts, ownership=SoleOwner(), leases=None, signs=None
        )
    leases = RunLeases(
        database, clock, name, notify_owner=lambda run_id: broadcasts.send(Topic.FRAMES, run_id)
    )
    stack.push_async_callback(leases.release)
    return Replica(
        name=name,
        broadcasts=broadcasts,
        ownership=leases,
        leases=leases,
        signs=SharedSigns(database, clock, liveness, name),
    )
