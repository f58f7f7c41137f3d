"""Packs old frames: called by the maintenance job, one pack at a time.

A pack is made in three steps: its object's name is noted as loose; the object is written; then one
transaction claims the name, adds the pack to the index and removes its frames. If the service is
killed at any point, its frames are as they were, and at worst a loose object is left, which the
sweep removes.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.ulids import ulid
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.objects import ObjectsAwayError, ObjectStore
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.telemetry.packs import hot_queries, queries
from runwatch_server.telemetry.packs.encoding import FrameToPack, encode_pack
from runwatch_server.telemetry.packs.hot_queries import HotRow, StreamToPack
from runwatch_server.telemetry.packs.queries import PackRow
from runwatch_server.telemetry.packs.unpacking import holds
from runwatch_server.telemetry.stored_steps import read_hot

log = logging.getLogger(__name__)

_SWEPT_AFTER_S: Final = 3600.0
"""Seconds after which a loose object is removed. By then, any reader that found its pack in the
index is done with it, and any writer too."""
_SWEEP_CHUNK: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits:
    """How large a pack is."""

    pack_bytes: int = 12 * 2**20
    """Bytes of frames as received: what one pack removes in one transaction, and about the size of
    its object."""
    raw_bytes: int = 64 * 2**20
    """Unpacked bytes: limits the memory when numbers compress to almost nothing."""
    pack_frames: int = 4096
    least_bytes: int = 256 * 2**10
    """Fewer bytes are not worth an object: they stay in the database, with the rest of their
    run."""


class PackObserver(Protocol):
    """Is notified of what happens to objects."""

    def observe_packed(self, *, num_bytes: int, num_frames: int) -> None: ...
    def observe_object_failure(self) -> None: ...
    def observe_swept(self, num_objects: int) -> None: ...


class Packer:
    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        clock: Clock,
        *,
        after_s: float,
        observer: PackObserver,
        limits: PackLimits | None = None,
    ) -> None:
        """Frames are packed once they are `after_s` seconds old."""
        self._database = database
        self._objects = objects
        self._clock = clock
        self._after_s = after_s
        self._observer = observer
        self._limits = limits or PackLimits()
        self._tasks = PerRunTasks("packing its frames")

    async def run(self) -> int:
        """Pack old frames and remove loose objects; returns the number of packs made.

        It ends if the store does not answer: the frames stay where they are until the next time.
        """
        num_packs = 0
        before = self._clock.wall() - self._after_s
        try:
            async with self._database.read() as connection:
                streams = await hot_queries.streams_to_pack(connection, before=before)
            for stream in streams:
                pack = partial(self._pack_stream, stream, before)
                part = f"attempt {stream.attempt}, rank {stream.rank}"
                num_packs += await self._tasks.do(stream.run_id, pack, part=part) or 0
            await self.sweep()
        except ObjectsAwayError as error:
            self._observer.observe_object_failure()
            log.warning("packing waits until the next time: %s", error)
        if num_packs:
            log.info("%d packs written to %s", num_packs, self._objects.place)
        return num_packs

    async def sweep(self) -> int:
        """Remove objects that belong to no pack; returns how many. Raises ObjectsAwayError."""
        before = self._clock.wall() - _SWEPT_AFTER_S
        num_swept = 0

        condemn = partial(queries.condemn_loose, before=before, limit=_SWEEP_CHUNK)
        while names := await self._database.write(condemn):
            for name in names:
                await self._objects.delete(name)
            await self._database.write(partial(queries.forget_loose, names=names))
            self._observer.observe_swept(len(names))
            num_swept += len(names)
        return num_swept

    async def _pack_stream(self, stream: StreamToPack, before: float) -> int:
        """Pack a stream's frames; returns the number of packs made."""
        num_packs, first_seq = 0, 1
        while group := cut(await self._rows(stream, first_seq, before), self._limits):
            if sum(row.num_bytes for row in group) >= self._limits.least_bytes:
                frames = await self._unpacked(group)
                # A corrupt frame stays as it is, and packing continues after it.
                group = group[: len(frames) or 1]
                num_packs += bool(frames) and await self._pack(group, frames)
            first_seq = group[-1].seq + 1
        return num_packs

    async def _rows(self, stream: StreamToPack, first_seq: int, before: float) -> list[HotRow]:
        async with self._database.read() as connection:
            return await hot_queries.rows_to_pack(
                connection,
                stream,
                first_seq=first_seq,
                before=before,
                limit=self._limits.pack_frames + 1,
            )

    async def _unpacked(self, group: Sequence[HotRow]) -> list[FrameToPack]:
        async with self._database.read() as connection:
            bodies = await hot_queries.bodies_of(connection, group)
        return await asyncio.to_thread(_unpack, group, bodies, self._limits.raw_bytes)

    async def _pack(self, group: Sequence[HotRow], frames: Sequence[FrameToPack]) -> bool:
        """Make a pack; returns whether it was made."""
        octets, contents = await asyncio.to_thread(encode_pack, frames)
        first = group[0]
        pack = PackRow(
            run_id=first.run_id,
            attempt=first.attempt,
            rank=first.rank,
            first_seq=first.seq,
            last_seq=group[-1].seq,
            segment=first.segment,
            first_step=min(row.first_step for row in group),
            last_step=max(row.last_step for row in group),
            object=self._new_name(first),
            num_bytes=len(octets),
            digest=hashlib.sha256(octets).hexdigest(),
            packed_at=self._clock.wall(),
            contents=contents.encode(),
        )
        # The frames are about to be removed, and a fault in the encoding must not lose them.
        if not await asyncio.to_thread(holds, pack, octets, [one.frame for one in frames]):
            self._observer.observe_object_failure()
            log.error("%s does not give its frames back: they stay where they are", pack.object)
            return False
        await self._database.write(
            partial(queries.note_loose, names=[pack.object], now=pack.packed_at)
        )
        await self._objects.put(pack.object, octets)
        is_made = await self._database.write(
            partial(_replace, pack=pack, group=group), of=pack.run_id
        )
        if is_made:
            self._observer.observe_packed(num_bytes=len(octets), num_frames=len(group))
        return is_made

    def _new_name(self, first: HotRow) -> str:
        """A name that was never used before, so that the sweep can never remove another object
        under it."""
        number = ulid(int(self._clock.wall() * 1000), secrets.token_bytes(10))
        return f"{first.run_id}/{first.attempt}-{first.rank}-{first.seq}-{number}.pack"


def cut(rows: Sequence[HotRow], limits: PackLimits) -> list[HotRow]:
    """The frames at the beginning of a stream's rows that go into one pack: of one segment,
    consecutive, and no more than a pack holds.

    Empty if more may still be added to them: the last frames of a live run wait until there are
    enough.
    """
    group: list[HotRow] = []
    num_bytes = 0
    for row in rows:
        is_next = not group or (row.seq, row.segment) == (group[-1].seq + 1, group[-1].segment)
        if not is_next or _is_full(len(group), num_bytes, limits):
            return group
        group.append(row)
        num_bytes += row.num_bytes
    is_done = _is_full(len(group), num_bytes, limits) or (group and group[-1].is_over)
    return group if is_done else []


def _is_full(num_frames: int, num_bytes: int, limits: PackLimits) -> bool:
    return num_frames >= limits.pack_frames or num_bytes >= limits.pack_bytes


def _unpack(group: Sequence[HotRow], bodies: Sequence[bytes], most_bytes: int) -> list[FrameToPack]:
    """The frames up to the first corrupt one, and no more than fit into memory."""
    frames: list[FrameToPack] = []
    raw_bytes = 0
    for row, body in zip(group, bodies, strict=False):
        frame = read_hot(row.hot(body))
        if frame is None or raw_bytes >= most_bytes:
            break
        packed = FrameToPack(frame, row.checksum, row.late, row.received_at)
        raw_bytes += packed.raw_bytes
        frames.append(packed)
    return frames


async def _replace(connection: AsyncConnection, pack: PackRow, group: Sequence[HotRow]) -> bool:
    """Replace frames by their pack; changes nothing if either is not as it was because another
    replica packed the frames, the run was removed, or the sweep has taken the object."""
    are_there = await hot_queries.count_rows(connection, group) == len(group)
    if not are_there or not await queries.claim_loose(connection, pack.object):
        # Again: a sweep between the noting and the writing found no object to remove.
        await queries.note_condemned(connection, pack.object, now=pack.packed_at)
        return False
    await queries.insert_pack(connection, pack)
    await hot_queries.delete_rows(connection, group)
    return True
