"""Stores histograms apart from the frames that brought them, so that they are found by step and
layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch import zstd
from runwatch.frames import Frame
from runwatch.histograms import Counts, HistogramKind, Histograms
from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.db.upsert import insert_if_absent
from runwatch_server.telemetry.tables import histograms

MAX_STEPS: Final = 1000
"""Most steps kept of one kind and rank of a run, the newest. 300 layers take some 20 kB per
step."""
_CHUNK_STEPS: Final = 100
_OF_STEP: Final = (
    histograms.c.run_id,
    histograms.c.kind,
    histograms.c.rank,
    histograms.c.step,
)


@dataclass(frozen=True, slots=True, eq=False)
class LayerHistogram:
    """The histogram of one layer at one step."""

    step: int
    attempt: int
    segment: int
    counts: Counts
    """(NUM_BINS,)"""


async def store_histograms(connection: AsyncConnection, run_id: RunId, frame: Frame) -> None:
    """Store a frame's histograms, inside the caller's write."""
    for found in frame.histograms:
        row = {
            "run_id": run_id,
            "kind": found.kind.value,
            "rank": frame.rank,
            "step": found.step,
            "attempt": frame.attempt,
            "segment": frame.segment,
            "part": found.part,
            "names": zstd.compress(msgspec.json.encode(found.names)),
            "packed": found.packed,
        }
        await insert_if_absent(connection, histograms, row)


async def find_histograms(
    connection: AsyncConnection,
    run_id: RunId,
    kind: HistogramKind,
    layer: str,
    *,
    rank: int,
    up_to: int | None,
    num_steps: int,
) -> list[LayerHistogram]:
    """The newest histograms of a layer at or before a step, oldest first.

    If a step was trained twice, after a rollback or by a later attempt, the newest one of it
    counts.
    """
    of_kind = (
        histograms.c.run_id == run_id,
        histograms.c.kind == kind.value,
        histograms.c.rank == rank,
        *(() if up_to is None else (histograms.c.step <= up_to,)),
    )
    steps = (
        sa.select(histograms.c.step)
        .where(*of_kind)
        .distinct()
        .order_by(histograms.c.step.desc())
        .limit(num_steps)
    )
    found = await connection.execute(
        sa.select(histograms)
        .where(*of_kind, histograms.c.step.in_(steps.subquery().select()))
        .order_by(histograms.c.step, histograms.c.attempt, histograms.c.segment)
    )
    newest: dict[int, LayerHistogram] = {}
    for row in found:
        counts = _counts_of(row, layer)
        if counts is not None:
            newest[row.step] = LayerHistogram(row.step, row.attempt, row.segment, counts)
    return [newest[step] for step in sorted(newest)]


async def remove_histograms(connection: AsyncConnection, run_id: RunId) -> int:
    """Remove a chunk of a run's histograms. Returns of how many steps; 0 if none are left."""
    steps = sa.select(*_OF_STEP).where(histograms.c.run_id == run_id).distinct()
    found = (await connection.execute(steps.limit(_CHUNK_STEPS))).all()
    if found:
        await _remove(connection, [tuple(row) for row in found])
    return len(found)


async def remove_crowded_histograms(database: Database) -> int:
    """Remove the histograms of every run beyond the newest MAX_STEPS of each kind and rank. Returns
    of how many steps."""
    old: list[tuple[object, ...]] = []
    async with database.read() as connection:
        series = sa.select(*_OF_STEP[:3]).distinct()
        for row in (await connection.execute(series)).all():
            old += await _beyond_the_newest(connection, tuple(row))
    by_run: dict[str, list[tuple[object, ...]]] = {}
    for key in old:
        by_run.setdefault(str(key[0]), []).append(key)
    for run_id, keys in by_run.items():
        for start in range(0, len(keys), _CHUNK_STEPS):
            chunk = keys[start : start + _CHUNK_STEPS]
            await database.write(partial(_remove, keys=chunk), of=RunId(run_id))
    return sum(len(keys) for keys in by_run.values())


async def _beyond_the_newest(
    connection: AsyncConnection, series: tuple[object, ...]
) -> list[tuple[object, ...]]:
    query = (
        sa.select(*_OF_STEP)
        .where(*(column == value for column, value in zip(_OF_STEP[:3], series, strict=True)))
        .distinct()
        .order_by(histograms.c.step.desc())
        .offset(MAX_STEPS)
    )
    return [tuple(row) for row in await connection.execute(query)]


async def _remove(connection: AsyncConnection, keys: Sequence[tuple[object, ...]]) -> None:
    await connection.execute(histograms.delete().where(sa.tuple_(*_OF_STEP).in_(keys)))


def _counts_of(row: sa.Row[tuple[object, ...]], layer: str) -> Counts | None:
    names = msgspec.json.decode(zstd.decompress(row.names), type=tuple[str, ...])
    if layer not in names:
        return None
    part = Histograms(row.step, HistogramKind(row.kind), names, row.packed, row.part)
    counts: Counts = part.counts()[names.index(layer)]
    return counts
