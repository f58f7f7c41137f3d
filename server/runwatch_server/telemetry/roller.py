"""Aggregates finished stretches of steps into rollups, so that a million steps can be read at once.

Every 1024 steps that a segment has completed become tiles of 64-step buckets. 16 of these tiles
become one of 512-step buckets, and 8 of those one of 4096-step buckets. Metrics are also kept step
by step (level 1): they are few, and their charts are examined closely. Once the run has ended, its
last steps are aggregated too, however few. Each stretch is one write, together with the mark of how
far aggregation has come: if the service is killed in the middle, it aggregates the stretch again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.db import Database
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.telemetry import queries, segment_queries, tile_queries
from runwatch_server.telemetry.coverage import first_held
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.gaps import GapReason
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.stored_steps import StoredSteps
from runwatch_server.telemetry.summing import UNIT, roll_up_above, unit_tiles

log = logging.getLogger(__name__)

_SETTLED: Final = 64
"""A stretch is aggregated once this many steps lie behind it, since metrics of its last steps may
come a little later. Even later ones are not lost: the stretch is then aggregated again."""
_PAGE_SEGMENTS: Final = 256
"""Read at a time. A round goes through all pages: if it ended with the first, segments that cannot
be aggregated, as of a damaged run, could fill that page for good."""
_MAX_UNITS: Final = 64
"""Most units of one segment at a time, so that a long import does not keep others waiting."""

_OWNER: Final = "rollups"
"""Takes one share of the budget of frames, whatever the runs' projects: units are aggregated one
after another."""


class Roller:
    def __init__(
        self,
        database: Database,
        layouts: Layouts,
        packs: PackReader,
        frame_budget: FrameBudget,
    ) -> None:
        self._database = database
        self._layouts = layouts
        self._packs = packs
        self._frame_budget = frame_budget
        self._tasks = PerRunTasks("summing up its steps")

    async def roll(self) -> int:
        """Aggregate what is finished; returns the number of stretches of 1024 steps."""
        num_done = 0
        async for segment, has_ended in self._unrolled():
            roll = partial(self._roll_segment, segment, _settled(segment, has_ended=has_ended))
            part = f"attempt {segment.attempt}, rank {segment.rank}, segment {segment.segment}"
            num_done += await self._tasks.do(segment.run_id, roll, part=part) or 0
        return num_done

    async def _unrolled(self) -> AsyncIterator[tuple[SegmentRow, bool]]:
        found: list[tuple[SegmentRow, bool]] = []
        while True:
            async with self._database.read() as connection:
                found = await segment_queries.list_unrolled(
                    connection,
                    UNIT + _SETTLED,
                    after=found[-1][0] if found else None,
                    limit=_PAGE_SEGMENTS,
                )
            for one in found:
                yield one
            if len(found) < _PAGE_SEGMENTS:
                return

    async def _roll_segment(self, segment: SegmentRow, settled: int) -> int:
        rolled_to = segment.rolled_to
        for num_done in range(_MAX_UNITS):
            if rolled_to + UNIT > settled:
                return num_done
            end = await self._roll_unit(segment, rolled_to, settled)
            if end is None:
                return num_done
            rolled_to = end
        return _MAX_UNITS

    async def _roll_unit(self, segment: SegmentRow, first_step: int, settled: int) -> int | None:
        """Aggregate one unit. Returns the step up to which the segment is then aggregated: the
        unit's end or, if the unit holds nothing, the next step that is held. None if frames arrived
        or were packed meanwhile, or if some cannot be read now."""
        end = first_step + UNIT
        stretch = Stretch(segment.attempt, segment.segment, first_step, end - 1)
        async with self._database.read() as connection:
            stored = StoredSteps(connection, self._packs, segment.run_id, segment.rank)
            found = await stored.frames(stretch)
            if found.is_empty and not found.gaps:
                stretch = replace(stretch, last_step=settled // UNIT * UNIT - 1)
                held = await first_held(connection, segment, stretch)
                end = max(end, held // UNIT * UNIT)
                stretch = replace(stretch, last_step=end - 1)
        if any(gap.reason is GapReason.LATE for gap in found.gaps):
            stored.noted(stretch, found.gaps)
            return None  # aggregated once the object store answers; lost frames never return
        layouts = {
            layout_hash: await self._layouts.find(segment.run_id, layout_hash)
            for layout_hash in found.layout_hashes
        }
        async with self._frame_budget.room(_OWNER, found.num_bytes):
            tiles = await asyncio.to_thread(unit_tiles, found.near, layouts, first_step)
        stored.noted(stretch, found.gaps)

        async def work(connection: AsyncConnection) -> bool:
            num_frames = await queries.count_frames(
                connection, segment.run_id, segment.rank, stretch
            )
            if num_frames != found.num_hot:
                return False
            if not await segment_queries.set_rolled(
                connection, segment, found=first_step, rolled_to=end
            ):
                return False
            await tile_queries.put_tiles(connection, segment, tiles)
            await roll_up_above(connection, segment, first_step, end)
            return True

        return end if await self._database.write(work, of=segment.run_id) else None


def _settled(segment: SegmentRow, *, has_ended: bool) -> int:
    """The step up to which a segment can be aggregated. Once its run has ended, that is the end of
    its last unit, however few steps that holds: its frames could never be removed otherwise."""
    if has_ended:
        return segment.last_step // UNIT * UNIT + UNIT
    return segment.last_step - _SETTLED
