"""All queries of the index of packs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.db.upsert import insert_if_absent
from runwatch_server.telemetry.gaps import Gap, GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.packs.contents import Contents, Directory
from runwatch_server.telemetry.packs.tables import loose_objects, packs


@dataclass(frozen=True, kw_only=True)
class PackRow:
    """A pack as the index describes it."""

    run_id: RunId
    attempt: int
    rank: int
    first_seq: int
    last_seq: int
    segment: int
    first_step: int
    last_step: int
    object: str
    num_bytes: int
    digest: str
    packed_at: float
    contents: bytes

    @cached_property
    def directory(self) -> Directory:
        return Directory(Contents.decode(self.contents))

    def gap(self, first_step: int, last_step: int, reason: GapReason) -> Gap:
        """The gap that these steps leave if they cannot be read."""
        return Gap(first_step, last_step, reason, self.object, self.segment)


@dataclass(frozen=True, slots=True)
class IndexedObject:
    """An object that a pack points to."""

    name: str
    num_bytes: int
    digest: str
    """SHA-256 of its bytes, in hexadecimal."""


async def packs_of_steps(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> list[PackRow]:
    """The packs that may hold any of these steps, in order of their sequence numbers."""
    query = (
        sa.select(packs)
        .where(
            *_is_stream(run_id, stretch.attempt, rank),
            packs.c.segment == stretch.segment,
            packs.c.first_step <= stretch.last_step,
            packs.c.last_step >= stretch.first_step,
        )
        .order_by(packs.c.first_seq)
    )
    return [PackRow(**row) for row in (await connection.execute(query)).mappings()]


async def next_pack(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, *, seq: int
) -> PackRow | None:
    """The pack that holds a sequence number, or else the first after it."""
    query = (
        sa.select(packs)
        .where(*_is_stream(run_id, attempt, rank), packs.c.last_seq >= seq)
        .order_by(packs.c.first_seq)
        .limit(1)
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else PackRow(**row)


async def packed_checksum(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
) -> int | None:
    """The checksum of a packed frame."""
    pack = await next_pack(connection, run_id, attempt, rank, seq=seq)
    if pack is None or seq < pack.first_seq:
        return None
    return pack.directory.contents.frames[seq - pack.first_seq].checksum


def indexed_objects(connection: sa.Connection) -> list[IndexedObject]:
    """The objects of all packs; none if the tables are older than packs."""
    if not sa.inspect(connection).has_table(packs.name):
        return []
    query = sa.select(packs.c.object, packs.c.num_bytes, packs.c.digest).order_by(packs.c.object)
    return [IndexedObject(*row) for row in connection.execute(query)]


async def packs_among(
    connection: AsyncConnection, query: sa.Select[*tuple[Any, ...]]
) -> list[PackRow]:
    """The packs that a query of whole rows finds."""
    return [PackRow(**row) for row in (await connection.execute(query)).mappings()]


async def insert_pack(connection: AsyncConnection, pack: PackRow) -> None:
    row = {column.name: getattr(pack, column.name) for column in packs.c}
    await connection.execute(packs.insert().values(row))


async def delete_packs(
    connection: AsyncConnection, found: Sequence[PackRow], *, now: float
) -> None:
    """Remove packs from the index; their objects are loose from then on."""
    keys = [(pack.run_id, pack.attempt, pack.rank, pack.first_seq) for pack in found]
    key = sa.tuple_(packs.c.run_id, packs.c.attempt, packs.c.rank, packs.c.first_seq)
    await connection.execute(packs.delete().where(key.in_(keys)))
    await note_loose(connection, [pack.object for pack in found], now=now)


async def note_loose(connection: AsyncConnection, names: Sequence[str], *, now: float) -> None:
    """Note objects that belong to no pack: about to be written, or no longer needed."""
    rows = [{"name": name, "noted_at": now, "condemned": False} for name in names]
    if rows:
        await connection.execute(loose_objects.insert(), rows)


async def note_condemned(connection: AsyncConnection, name: str, *, now: float) -> None:
    """Note an object that must not become a pack's, unless it is noted already."""
    row = {"name": name, "noted_at": now, "condemned": True}
    await insert_if_absent(connection, loose_objects, row)


async def claim_loose(connection: AsyncConnection, name: str) -> bool:
    """Claim an object for a pack; returns whether the pack may have it."""
    claimed = await connection.execute(
        loose_objects.delete().where(loose_objects.c.name == name, ~loose_objects.c.condemned)
    )
    return claimed.rowcount == 1


async def condemn_loose(connection: AsyncConnection, *, before: float, limit: int) -> list[str]:
    """Condemn objects that have been loose since before a time, so that no pack can claim them any
    more."""
    oldest = (
        sa.select(loose_objects.c.name)
        .where(loose_objects.c.noted_at < before)
        .order_by(loose_objects.c.noted_at)
        .limit(limit)
    )
    condemned = (
        loose_objects.update()
        .where(loose_objects.c.name.in_(oldest))
        .values(condemned=True)
        .returning(loose_objects.c.name)  # without those a pack has just claimed
    )
    return list(await connection.scalars(condemned))


async def forget_loose(connection: AsyncConnection, names: Sequence[str]) -> None:
    """Remove the notes of objects that no longer exist."""
    await connection.execute(loose_objects.delete().where(loose_objects.c.name.in_(names)))


def _is_stream(run_id: RunId, attempt: int, rank: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (packs.c.run_id == run_id, packs.c.attempt == attempt, packs.c.rank == rank)
