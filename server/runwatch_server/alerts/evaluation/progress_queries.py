"""Queries for how far each stream has been judged, and by which rules."""

from collections.abc import Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts.records import Evaluation
from runwatch_server.alerts.tables import evaluations, passed_over, rule_sets
from runwatch_server.db import insert_if_absent
from runwatch_server.telemetry.tables import frames

# Built once: these run with every batch, and building takes longer than running.
_ADVANCE: Final = (
    sa.update(evaluations)
    .where(
        evaluations.c.run_id == bindparam("of_run"),
        evaluations.c.attempt == bindparam("of_attempt"),
        evaluations.c.rank == bindparam("of_rank"),
        evaluations.c.evaluated_seq == bindparam("found"),
    )
    .values(evaluated_seq=bindparam("to_seq"))
)
_NOTE_PASSED_OVER: Final = sa.insert(passed_over).from_select(
    ["run_id", "attempt", "rank", "seq"],
    sa.select(
        evaluations.c.run_id,
        evaluations.c.attempt,
        evaluations.c.rank,
        bindparam("seq", type_=sa.BigInteger),
    ).where(
        evaluations.c.run_id == bindparam("of_run"),
        evaluations.c.attempt == bindparam("of_attempt"),
        evaluations.c.rank == bindparam("of_rank"),
        evaluations.c.evaluated_seq >= bindparam("seq", type_=sa.BigInteger),
    ),
)
_ADVANCE_WITH_STATE: Final = _ADVANCE.values(
    state_seq=bindparam("to_state_seq"),
    state=bindparam("to_state"),
    rule_set=bindparam("to_rule_set"),
)


async def find_evaluation(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> Evaluation | None:
    found = await connection.execute(
        sa.select(evaluations).where(
            evaluations.c.run_id == run_id,
            evaluations.c.attempt == attempt,
            evaluations.c.rank == rank,
        )
    )
    row = found.mappings().first()
    return None if row is None else Evaluation(**row)


async def find_last_evaluation(
    connection: AsyncConnection, run_id: RunId, rank: int, *, before: int
) -> Evaluation | None:
    """The evaluation of the newest earlier attempt of which any frame was judged."""
    found = await connection.execute(
        sa.select(evaluations)
        .where(
            evaluations.c.run_id == run_id,
            evaluations.c.rank == rank,
            evaluations.c.attempt < before,
        )
        .order_by(evaluations.c.attempt.desc())
        .limit(1)
    )
    row = found.mappings().first()
    return None if row is None else Evaluation(**row)


async def insert_evaluation(connection: AsyncConnection, evaluation: Evaluation) -> None:
    await connection.execute(
        sa.insert(evaluations).values(
            run_id=evaluation.run_id,
            attempt=evaluation.attempt,
            rank=evaluation.rank,
            evaluated_seq=evaluation.evaluated_seq,
            state_seq=evaluation.state_seq,
            state=evaluation.state,
            rule_set=evaluation.rule_set,
        )
    )


async def advance_evaluation(
    connection: AsyncConnection,
    before: Evaluation,
    after: Evaluation,
) -> bool:
    """Advance a watermark, unless another process has moved it; returns whether it did. The state
    is stored too if it is new."""
    key = {
        "of_run": before.run_id,
        "of_attempt": before.attempt,
        "of_rank": before.rank,
        "found": before.evaluated_seq,
        "to_seq": after.evaluated_seq,
    }
    if after.state is before.state and after.rule_set == before.rule_set:
        done = await connection.execute(_ADVANCE, key)
    else:
        saved = {
            "to_state_seq": after.state_seq,
            "to_state": after.state,
            "to_rule_set": after.rule_set,
        }
        done = await connection.execute(_ADVANCE_WITH_STATE, key | saved)
    return done.rowcount == 1


async def note_passed_over(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, seq: int
) -> None:
    """Note that a frame was stored, if the watermark has passed its number: it is still to be
    judged."""
    key = {"of_run": run_id, "of_attempt": attempt, "of_rank": rank, "seq": seq}
    await connection.execute(_NOTE_PASSED_OVER, key)


async def note_passed_over_among(
    connection: AsyncConnection, of: Evaluation, seqs: range
) -> list[int]:
    """The same for frames that were stored while the watermark was about to pass these numbers,
    which it has done; returns theirs."""
    found = await connection.scalars(
        sa.select(frames.c.seq).where(
            frames.c.run_id == of.run_id,
            frames.c.attempt == of.attempt,
            frames.c.rank == of.rank,
            frames.c.seq.between(seqs.start, seqs.stop - 1),
        )
    )
    stored = list(found)
    for seq in stored:
        await note_passed_over(connection, of.run_id, of.attempt, of.rank, seq)
    return stored


async def find_passed_over(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int
) -> set[int]:
    """The frames of a stream that the watermark had passed, and that are to be judged."""
    wanted = sa.select(passed_over.c.seq).where(*_of_stream(run_id, attempt, rank))
    return set(await connection.scalars(wanted))


async def drop_passed_over(connection: AsyncConnection, of: Evaluation, seq: int) -> bool:
    """Note that such a frame was judged, or cannot be; returns whether it was still to be."""
    is_frame = (*_of_stream(of.run_id, of.attempt, of.rank), passed_over.c.seq == seq)
    done = await connection.execute(sa.delete(passed_over).where(*is_frame))
    return done.rowcount == 1


def _of_stream(run_id: RunId, attempt: int, rank: int) -> tuple[sa.ColumnElement[bool], ...]:
    table = passed_over.c
    return (table.run_id == run_id, table.attempt == attempt, table.rank == rank)


async def store_rule_set(
    connection: AsyncConnection, rule_set: str, documents: Sequence[object]
) -> None:
    """Store the rules of a set, unless they are stored already."""
    row = {"hash": rule_set, "documents": msgspec.json.encode(documents).decode()}
    await insert_if_absent(connection, rule_sets, row)


async def find_rule_set(connection: AsyncConnection, rule_set: str) -> list[object]:
    found = await connection.execute(
        sa.select(rule_sets.c.documents).where(rule_sets.c.hash == rule_set)
    )
    return msgspec.json.decode(found.scalar_one(), type=list[object])
