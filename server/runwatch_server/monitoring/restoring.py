"""Brings the figures of runs back when the service starts.

Without it a run that sends nothing would be missing from `/metrics` after a restart: one that
hangs, is lost or has failed, which is the one that somebody looks for.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from runwatch.codec import decode_metrics, split_frame
from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.monitoring.queries import Shown, list_shown, newest_frames
from runwatch_server.monitoring.run_figures import ENDED_FOR_S, MAX_RUNS, RunFigures
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.queries import HotFrame
from runwatch_server.telemetry.stored_steps import read_hot

log = logging.getLogger(__name__)

_NUM_FRAMES: Final = 4
"""Frames read of each run: the newest may hold only an evaluation, or only activations."""
_RUN_BYTES: Final = 2 * 2**20
"""Most that they may unpack to together. The service does not answer before all runs are read, and
some kilobytes may unpack to 64 MiB."""


async def restore(figures: RunFigures, database: Database, layouts: Layouts, *, now: float) -> None:
    """Notes the newest stored frames of the runs that are shown, before any other comes in."""
    async with database.read() as connection:
        shown = await list_shown(connection, ended_after=now - ENDED_FOR_S, limit=MAX_RUNS)
    for one in reversed(shown):
        try:
            await _restore_run(figures, one, database, layouts)
        except Exception:  # whatever is damaged of this run, the service must start
            log.exception("run %s is not in the metrics until it sends again", one.run_id)


async def _restore_run(
    figures: RunFigures, shown: Shown, database: Database, layouts: Layouts
) -> None:
    run_id, late = shown.run_id, not shown.is_live
    async with database.read() as connection:
        arrivals = await newest_frames(connection, run_id, shown.attempt, limit=_NUM_FRAMES)
    frames = await asyncio.to_thread(_unpacked, [arrival.frame for arrival in arrivals])
    for arrival, frame in zip(arrivals, frames, strict=True):
        if frame is not None:
            layout = await _layout_of(run_id, frame, layouts)
            figures.note(run_id, frame, layout, at=arrival.received_at, late=late)


def _unpacked(stored: Sequence[HotFrame]) -> list[Frame | None]:
    """The frames, given in order, as far as there is room, the newest first: without their layers
    where there is none for these. None for those that cannot be read, or for which there is no
    room."""
    left_bytes, frames = _RUN_BYTES, list[Frame | None]()
    for hot in reversed(stored):
        frame, num_bytes = _unpacked_within(hot, left_bytes)
        left_bytes -= num_bytes
        frames.append(frame)
    return frames[::-1]


def _unpacked_within(hot: HotFrame, most_bytes: int) -> tuple[Frame | None, int]:
    """The frame, and what it unpacked to."""
    try:
        header, _ = split_frame(hot.body)
    except FrameError:
        return None, 0
    if header.block_bytes <= most_bytes:
        return read_hot(hot), header.block_bytes
    if header.start_bytes <= most_bytes:
        return read_hot(hot, decode_metrics), header.start_bytes
    return None, 0


async def _layout_of(run_id: RunId, frame: Frame, layouts: Layouts) -> Layout | None:
    return await layouts.find(run_id, frame.layout_hash) if frame.layout_hash else None
