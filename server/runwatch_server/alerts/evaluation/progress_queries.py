"""Queries for how far each stream has been judged, and by which rules."""

from collections.abc import Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts.records import Evaluation
from runwatch_server.alerts.tables import evaluations, rule_sets
from runwatch_server.db import insert_if_absent

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
    if after.state_seq == before.state_seq and after.rule_set == before.rule_set:
        done = await connection.execute(_ADVANCE, key)
    else:
        saved = {
            "to_state_seq": after.state_seq,
            "to_state": after.state,
            "to_rule_set": after.rule_set,
        }
        done = await connection.execute(_ADVANCE_WITH_STATE, key | saved)
    return done.rowcount == 1


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
