"""Queries of the frames in the database that are to be packed."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.queries import HotFrame
from runwatch_server.telemetry.tables import frames, streams


@dataclass(frozen=True, slots=True)
class StreamToPack:
    """A stream with frames that are old enough to pack."""

    run_id: RunId
    attempt: int
    rank: int
    next_seq: int
    is_over: bool
    """Whether its run has ended, so that no more frames are expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRow:
    """A frame's row without its body."""

    run_id: RunId
    attempt: int
    rank: int
    seq: int
    segment: int
    first_step: int
    num_steps: int
    layout_hash: str
    checksum: int
    late: bool
    received_at: float
    num_bytes: int
    is_over: bool
    """Whether no further frames will come that could be packed with it."""

    @property
    def last_step(self) -> int:
        return self.first_step + max(self.num_steps, 1) - 1

    def hot(self, body: bytes) -> HotFrame:
        return HotFrame.of(self, body)


async def streams_to_pack(connection: AsyncConnection, *, before: float) -> list[StreamToPack]:
    """Streams whose first frame that is not in a pack was received before a time."""
    oldest = (
        sa.select(frames.c.received_at)
        .where(
            frames.c.run_id == streams.c.run_id,
            frames.c.attempt == streams.c.attempt,
            frames.c.rank == streams.c.rank,
        )
        .order_by(frames.c.seq)
        .limit(1)
        .scalar_subquery()
    )
    ended = [state.value for state in RunState if state.is_ended]
    query = (
        sa.select(
            streams.c.run_id,
            streams.c.attempt,
            streams.c.rank,
            streams.c.next_seq,
            (runs.c.state.in_(ended) | (streams.c.attempt < runs.c.current_attempt)).label("over"),
        )
        .join(runs, runs.c.id == streams.c.run_id)
        .where(oldest < before)
        .order_by(streams.c.run_id, streams.c.attempt, streams.c.rank)
    )
    return [
        StreamToPack(RunId(row.run_id), row.attempt, row.rank, row.next_seq, row.over)
        for row in await connection.execute(query)
    ]


async def rows_to_pack(
    connection: AsyncConnection,
    stream: StreamToPack,
    *,
    first_seq: int,
    before: float,
    limit: int,
) -> list[HotRow]:
    """Rows of a stream in order, from a sequence number up to the first that is too young.

    Leaves out frames behind a missing one, which may still come: what is packed is acknowledged for
    good. Leaves out the newest frame that holds steps: it says when the run was last heard of.
    """
    of_stream = (
        frames.c.run_id == stream.run_id,
        frames.c.attempt == stream.attempt,
        frames.c.rank == stream.rank,
    )
    newest = await connection.scalar(
        sa.select(sa.func.max(frames.c.seq)).where(*of_stream, frames.c.num_steps > 0)
    )
    end = min(stream.next_seq, newest or 0)
    columns = [column for column in frames.c if column.name != "body"]
    query = (
        sa.select(*columns, sa.func.length(frames.c.body).label("num_bytes"))
        .where(*of_stream, frames.c.seq >= first_seq, frames.c.seq < end)
        .order_by(frames.c.seq)
        .limit(limit)
    )
    rows = (await connection.execute(query)).mappings().all()
    young = next((place for place, row in enumerate(rows) if row["received_at"] >= before), None)
    is_over = stream.is_over and young is None
    return [HotRow(**row, is_over=is_over) for row in rows[:young]]


async def bodies_of(connection: AsyncConnection, group: Sequence[HotRow]) -> list[bytes]:
    query = sa.select(frames.c.body).where(*_is_group(group)).order_by(frames.c.seq)
    return list(await connection.scalars(query))


async def count_rows(connection: AsyncConnection, group: Sequence[HotRow]) -> int:
    query = sa.select(sa.func.count()).select_from(frames).where(*_is_group(group))
    return await connection.scalar(query) or 0


async def delete_rows(connection: AsyncConnection, group: Sequence[HotRow]) -> None:
    await connection.execute(frames.delete().where(*_is_group(group)))


def _is_group(group: Sequence[HotRow]) -> tuple[sa.ColumnElement[bool], ...]:
    """The condition that selects consecutive frames of one stream."""
    first = group[0]
    return (
        frames.c.run_id == first.run_id,
        frames.c.attempt == first.attempt,
        frames.c.rank == first.rank,
        frames.c.seq.between(first.seq, group[-1].seq),
    )
