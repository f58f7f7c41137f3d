"""Queries of stored frames, except those in packs, and of metric names."""

from dataclasses import dataclass
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import MAX_STEPS
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.history import Stretch
from runwatch_server.telemetry.tables import frames, metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class HotFrame:
    """A frame as it was received, with what its row says about it."""

    seq: int
    segment: int
    first_step: int
    num_steps: int
    layout_hash: str
    body: bytes

    @classmethod
    def of(cls, row: Any, body: bytes) -> Self:
        """From a row that has `HOT_COLUMNS`, but for the body, which may be read apart from it."""
        return cls(
            seq=row.seq,
            segment=row.segment,
            first_step=row.first_step,
            num_steps=row.num_steps,
            layout_hash=row.layout_hash,
            body=body,
        )


HOT_COLUMNS: Final = (
    frames.c.seq,
    frames.c.segment,
    frames.c.first_step,
    frames.c.num_steps,
    frames.c.layout_hash,
    frames.c.body,
)


async def list_metrics(connection: AsyncConnection, run_id: RunId) -> list[str]:
    query = sa.select(metrics.c.name).where(metrics.c.run_id == run_id).order_by(metrics.c.name)
    return list(await connection.scalars(query))


async def frames_of_steps(
    connection: AsyncConnection,
    run_id: RunId,
    rank: int,
    stretch: Stretch,
) -> list[HotFrame]:
    """The frames that hold any of these steps, in order of their sequence numbers, except those in
    packs."""
    query = sa.select(*HOT_COLUMNS).where(*_holds(run_id, rank, stretch)).order_by(frames.c.seq)
    return [HotFrame.of(row, row.body) for row in await connection.execute(query)]


async def newest_frame(connection: AsyncConnection, run_id: RunId, attempt: int) -> bytes | None:
    """The body of rank 0's newest frame that holds steps."""
    query = (
        sa.select(frames.c.body)
        .where(*_is_stream(run_id, attempt, 0), frames.c.num_steps > 0)
        .order_by(frames.c.seq.desc())
        .limit(1)
    )
    body: bytes | None = await connection.scalar(query)
    return body


async def newest_arrival(connection: AsyncConnection, run_id: RunId, attempt: int) -> float | None:
    """When rank 0's newest steps arrived; None if none are stored."""
    query = (
        sa.select(frames.c.received_at)
        .where(*_is_stream(run_id, attempt, 0), frames.c.num_steps > 0)
        .order_by(frames.c.seq.desc())
        .limit(1)
    )
    at: float | None = await connection.scalar(query)
    return at


async def count_frames(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> int:
    query = sa.select(sa.func.count()).where(*_holds(run_id, rank, stretch))
    return await connection.scalar(query) or 0


async def first_hot_step(
    connection: AsyncConnection, run_id: RunId, rank: int, stretch: Stretch
) -> int | None:
    """The first step of the first frame that holds any of these steps, except those in packs."""
    query = sa.select(sa.func.min(frames.c.first_step)).where(*_holds(run_id, rank, stretch))
    step: int | None = await connection.scalar(query)
    return step


def _is_stream(run_id: RunId, attempt: int, rank: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (frames.c.run_id == run_id, frames.c.attempt == attempt, frames.c.rank == rank)


def _holds(run_id: RunId, rank: int, stretch: Stretch) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        *_is_stream(run_id, stretch.attempt, rank),
        frames.c.segment == stretch.segment,
        frames.c.first_step > stretch.first_step - MAX_STEPS,  # no frame is longer
        frames.c.first_step <= stretch.last_step,
        frames.c.first_step + frames.c.num_steps > stretch.first_step,
    )
