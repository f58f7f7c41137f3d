"""Finds out which steps are still stored as they were received."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.packs.queries import packs_of_steps
from runwatch_server.telemetry.queries import first_hot_step
from runwatch_server.telemetry.segment_queries import SegmentRow
from runwatch_server.telemetry.tables import frames


async def are_held(connection: AsyncConnection, segment: SegmentRow, stretch: Stretch) -> bool:
    """Whether frames or packs hold all steps of a stretch."""
    found = await connection.execute(
        sa.select(frames.c.first_step, frames.c.num_steps).where(
            frames.c.run_id == segment.run_id,
            frames.c.attempt == stretch.attempt,
            frames.c.rank == segment.rank,
            frames.c.segment == stretch.segment,
            frames.c.first_step <= stretch.last_step,
            frames.c.first_step + frames.c.num_steps > stretch.first_step,
        )
    )
    spans = [(first_step, num_steps) for first_step, num_steps in found]
    for pack in await packs_of_steps(connection, segment.run_id, segment.rank, stretch):
        packed = pack.directory.contents.frames
        spans += [(frame.first_step, frame.num_steps) for frame in packed]
    next_step = stretch.first_step
    for first_step, num_steps in sorted(spans):
        if first_step > next_step:
            return False
        next_step = max(next_step, first_step + num_steps)
    return next_step > stretch.last_step


async def first_held(connection: AsyncConnection, segment: SegmentRow, stretch: Stretch) -> int:
    """The first step of a stretch that a frame, packed or not, may hold; the step after its last if
    none does."""
    hot = await first_hot_step(connection, segment.run_id, segment.rank, stretch)
    found = [stretch.last_step + 1] if hot is None else [hot]
    for pack in await packs_of_steps(connection, segment.run_id, segment.rank, stretch):
        found += [
            frame.first_step
            for frame in pack.directory.contents.frames
            if frame.num_steps and frame.first_step + frame.num_steps > stretch.first_step
        ]
    return max(stretch.first_step, min(found))
