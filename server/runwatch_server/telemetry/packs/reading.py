"""Reads packs: some columns, or frames as they were sent. What cannot be read becomes a gap."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from runwatch.vocabulary import RunId
from runwatch_server.objects import ObjectLostError, ObjectsAwayError, ObjectStore
from runwatch_server.telemetry.gaps import Gap, GapObserver, GapReason, NoGapObserver
from runwatch_server.telemetry.packs.queries import PackRow
from runwatch_server.telemetry.packs.unpacking import (
    Found,
    Part,
    Places,
    Table,
    UnpackedFrame,
    parts_of,
    rows_of,
    unpack_frames,
)

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 3.0
"""Seconds to wait for one answer of the store. A reader of the page should not wait longer, and
PostgreSQL ends a transaction that is idle for 5 s."""
_LEAVE_ALONE_S: Final = 15.0
"""Seconds for which a store that did not answer is not asked again; otherwise each reader would
wait in turn."""


class _UnreadableError(Exception):
    """A part of an object cannot be read."""

    def __init__(self, reason: GapReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class PackReader:
    """Reads packs. `objects` is None for a service without an object store: its index is empty,
    unless the setting was removed later."""

    def __init__(
        self,
        objects: ObjectStore | None,
        monotonic: Callable[[], float],
        observer: GapObserver | None = None,
    ) -> None:
        self._objects = objects
        self._monotonic = monotonic
        self._observer = observer or NoGapObserver()
        self._ask_again_at = -math.inf
        self._kept: tuple[str, bytes] = ("", b"")

    def note(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None:
        """Report what a reader could not read."""
        if gaps:
            self._observer.observe_gaps(run_id, attempt, rank, gaps)

    async def columns(
        self, pack: PackRow, places: Places, first_step: int, last_step: int
    ) -> Found[Part]:
        """The wanted columns of each frame that holds any of these steps."""
        found: Found[Part] = Found()
        for number, shape in enumerate(pack.directory.contents.shapes):
            place = places(shape.layout_hash, shape.metric_names)
            rows = rows_of(pack.directory, number, first_step, last_step)
            if place is not None and rows:
                table = Table(number, rows, place)
                await self._fill(pack, table)
                found += parts_of(pack, table, first_step, last_step)
        return found

    async def frames(self, pack: PackRow, first_seq: int, last_seq: int) -> Found[UnpackedFrame]:
        """The frames of a pack within these sequence numbers. The whole object is read at once, and
        cached for readers of the following ones."""
        try:
            whole = await self._whole(pack)
        except _UnreadableError as error:
            return Found(gaps=[pack.gap(pack.first_step, pack.last_step, error.reason)])
        first = max(first_seq, pack.first_seq) - pack.first_seq
        end = min(last_seq, pack.last_seq) - pack.first_seq + 1
        return await asyncio.to_thread(unpack_frames, pack, range(first, end), whole)

    async def _fill(self, pack: PackRow, table: Table) -> None:
        tiles = table.tiles(pack.directory)
        try:
            octets = await self._read(pack.object, [(tile.start, tile.end) for tile in tiles])
        except _UnreadableError as error:
            for tile in tiles:
                table.miss(tile, error.reason)
        else:
            await asyncio.to_thread(table.put_all, tiles, octets)

    async def _whole(self, pack: PackRow) -> bytes:
        name, content = self._kept
        if name != pack.object:
            (content,) = await self._read(pack.object, [(0, pack.num_bytes)])
            self._kept = (pack.object, content)
        return content

    async def _read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Raises _UnreadableError."""
        now = self._monotonic()
        if self._objects is None or now < self._ask_again_at:
            raise _UnreadableError(GapReason.LATE)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._objects.read(name, ranges)
        except ObjectLostError as error:
            raise _UnreadableError(GapReason.LOST) from error
        except (ObjectsAwayError, TimeoutError) as error:
            log.warning("the object store is left alone for %d s: %s", _LEAVE_ALONE_S, error)
            self._ask_again_at = self._monotonic() + _LEAVE_ALONE_S
            raise _UnreadableError(GapReason.LATE) from error
