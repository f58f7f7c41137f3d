"""Queries of runs that have failed or been taken over, and of the alerts about them."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.alerts.queries import IS_OPEN
from runwatch_server.alerts.records import Resolution
from runwatch_server.alerts.tables import alerts
from runwatch_server.rules.own_names import (
    ATTEMPT_REPLACED,
    OUTLAST_RUNS,
    RUN_FAILED,
    RUN_LOST,
)
from runwatch_server.runs.tables import attempts, runs

_OF_ATTEMPT = (attempts.c.run_id == runs.c.id) & (attempts.c.attempt == runs.c.current_attempt)
_LOST_TO_ITS_END = (alerts.c.rule == RUN_LOST) & (
    IS_OPEN | (alerts.c.resolution == Resolution.RUN_ENDED.value)
)
"""A run that fell silent and never spoke again: that it failed was brought in afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failure of a run's current attempt, or what goes on of an older one."""

    rule: str
    run_id: RunId
    project: str
    attempt: int
    last_step: int
    at: float
    """When the service heard of it, in Unix seconds."""
    reason: str
    """What the trainer said; may be empty, and may have several lines. Of an attempt that was
    replaced: by which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldFailure:
    """An open alert about a failure, and what has become of its run."""

    rule: str
    run_id: RunId
    attempt: int
    at: float
    current_attempt: int


async def list_untold(
    connection: AsyncConnection, span: tuple[float, float], *, run_id: RunId | None = None
) -> list[Failure]:
    """Failures that people have not been told of, of all runs or of one, in a span of time (from,
    to, in Unix seconds). Left out are attempts that were sent afterwards, runs that never made a
    step, and runs that people were told are lost."""
    is_told = (
        sa.exists()
        .where(alerts.c.run_id == runs.c.id, alerts.c.attempt == runs.c.current_attempt)
        .where((alerts.c.rule == RUN_FAILED) | _LOST_TO_ITS_END)
    )
    query = (
        sa.select(
            runs.c.id.label("run_id"),
            runs.c.project,
            runs.c.current_attempt.label("attempt"),
            runs.c.last_step,
            runs.c.ended_at.label("at"),
            sa.func.coalesce(attempts.c.reason, "").label("reason"),
        )
        .join(attempts, _OF_ATTEMPT)
        .where(runs.c.state == RunState.FAILED.value, runs.c.ended_at.between(*span))
        .where(attempts.c.live, runs.c.last_step.is_not(None), ~is_told)
    )
    if run_id is not None:
        query = query.where(runs.c.id == run_id)
    found = (await connection.execute(query)).mappings()
    return [Failure(rule=RUN_FAILED, **row) for row in found]


async def list_outlived(
    connection: AsyncConnection, *, since: float, run_id: RunId | None = None
) -> list[Failure]:
    """The attempts that went on after another had replaced them, since a time, and that people
    have not been told of; of all runs or of one."""
    is_told = sa.exists().where(
        alerts.c.run_id == runs.c.id,
        alerts.c.attempt == attempts.c.attempt,
        alerts.c.rule == ATTEMPT_REPLACED,
    )
    query = (
        sa.select(
            runs.c.id.label("run_id"),
            runs.c.project,
            attempts.c.attempt,
            sa.func.coalesce(runs.c.last_step, 0).label("last_step"),
            attempts.c.outlived_at.label("at"),
            runs.c.current_attempt,
        )
        .join(attempts, attempts.c.run_id == runs.c.id)
        .where(attempts.c.outlived_at >= since, ~is_told)
    )
    if run_id is not None:
        query = query.where(runs.c.id == run_id)
    return [_outlived(**row) for row in (await connection.execute(query)).mappings()]


def _outlived(*, current_attempt: int, attempt: int, **facts: Any) -> Failure:
    reason = f"attempt {attempt} goes on, though attempt {current_attempt} has taken its place"
    return Failure(rule=ATTEMPT_REPLACED, attempt=attempt, reason=reason, **facts)


async def list_told(connection: AsyncConnection) -> list[ToldFailure]:
    """The open alerts about failures."""
    query = (
        sa.select(
            alerts.c.rule,
            alerts.c.run_id,
            alerts.c.attempt,
            alerts.c.onset_at.label("at"),
            runs.c.current_attempt,
        )
        .join(runs, runs.c.id == alerts.c.run_id)
        .where(alerts.c.rule.in_(OUTLAST_RUNS), IS_OPEN)
    )
    return [ToldFailure(**row) for row in (await connection.execute(query)).mappings()]
