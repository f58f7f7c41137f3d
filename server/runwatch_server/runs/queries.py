"""All queries of the tables of runs and attempts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Scalar
from runwatch.ulids import time_of
from runwatch.vocabulary import PolicyMode, RunId, RunState
from runwatch_server.runs.tables import attempts, runs

_CLOCKS_APART_S: Final = 86400.0
"""How far the clock of the machine that started a job may be ahead of ours."""

IS_GOING_ON: Final = runs.c.state.in_([state.value for state in RunState if not state.is_ended])
"""Whether a run has not ended."""
# Built once: it runs every second, and building it takes longer than running it.
_LIST_OPEN: Final = sa.select(
    runs.c.id, runs.c.state, runs.c.current_attempt, runs.c.created_at
).where(IS_GOING_ON, runs.c.current_attempt > 0)

NEWEST_FIRST: Final = (runs.c.created_at.desc(), runs.c.id.desc())
"""By the service's clock: the ids are the trainers', and a clock may be years off."""

_LISTED: Final = tuple(column for column in runs.c if column is not runs.c.config)

SPEAKING_ATTEMPT: Final = sa.case(
    (runs.c.current_attempt > 0, runs.c.current_attempt),
    else_=sa.select(sa.func.coalesce(sa.func.max(attempts.c.attempt), 0))
    .where(attempts.c.run_id == runs.c.id)
    .correlate(runs)
    .scalar_subquery(),
)
"""The attempt by which a run is shown: the current one or, of a run that was only brought in
afterwards and so has none, the newest. 0: there is none at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run without its configuration, which may be large: as it is read of many runs at once."""

    id: RunId
    project: str
    name: str
    state: RunState
    policy: PolicyMode | None
    """None: the service's default."""
    created_at: float
    ended_at: float | None = None
    current_attempt: int = 0
    """The newest live attempt, which fences off older ones; 0: none yet."""
    last_step: int | None = None
    group: str | None = None
    """Name shared by runs of a project that repeat one another: seeds, replicas, a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(ListedRun):
    """A run as it is stored."""

    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The columns of a live run that are safe to read for all runs at once.

    There are no texts among them: a damaged one in a single run must not block all the others.
    """

    id: RunId
    state: RunState
    current_attempt: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of a run's processes, as it is stored."""

    run_id: RunId
    attempt: int
    token_hash: str
    live: bool
    started_at: float
    opened_at: float
    resume_step: int
    world_size: int
    allow: tuple[str, ...]
    host: Mapping[str, Scalar]
    closed_at: float | None = None
    status: str | None = None
    reason: str | None = None
    last_step: int | None = None
    signing_key: str | None = None
    """Fingerprint of the key that its secret is derived from; None: it has no secret."""


async def insert_run(connection: AsyncConnection, run: Run) -> None:
    await connection.execute(
        runs.insert().values(
            id=run.id,
            project=run.project,
            name=run.name,
            state=run.state,
            policy=run.policy,
            config=msgspec.json.encode(run.config).decode(),
            created_at=run.created_at,
            current_attempt=run.current_attempt,
            run_group=run.group,
        )
    )


async def find_run(connection: AsyncConnection, run_id: RunId) -> Run | None:
    row = (await connection.execute(sa.select(runs).where(runs.c.id == run_id))).one_or_none()
    if row is None:
        return None
    config = msgspec.json.decode(row.config, type=dict[str, object])
    return Run(**_facts(row), config=config)


async def find_runs(connection: AsyncConnection, run_ids: Collection[RunId]) -> list[ListedRun]:
    """Those of the runs that exist, newest first."""
    query = sa.select(*_LISTED).where(runs.c.id.in_(run_ids)).order_by(*NEWEST_FIRST)
    return [ListedRun(**_facts(row)) for row in await connection.execute(query)]


async def list_runs(
    connection: AsyncConnection,
    *,
    name: str | None = None,
    project: str | None = None,
    group: str | None = None,
    state: RunState | None = None,
    job: str | None = None,
    before: str | None = None,
    limit: int = 100,
) -> list[ListedRun]:
    """Newest first; `before` is the id of the last run already seen. `job` is a ULID."""
    query = sa.select(*_LISTED).order_by(*NEWEST_FIRST).limit(limit)
    if name is not None:
        query = query.where(runs.c.name == name)
    if project is not None:
        query = query.where(runs.c.project == project)
    if group is not None:
        query = query.where(runs.c.run_group == group)
    if state is not None:
        query = query.where(runs.c.state == state)
    if job is not None:
        query = query.where(sa.or_(runs.c.id == job, runs.c.id.in_(_reporting(job))))
    if before is not None:
        query = query.where(_is_older_than(before))
    return [ListedRun(**_facts(row)) for row in await connection.execute(query)]


def _reporting(job: str) -> sa.Select[tuple[str]]:
    """The runs with attempts that report this job among their facts. The id of a job says when it
    began, so that older attempts need not be searched."""
    began_at = time_of(job) - _CLOCKS_APART_S
    is_of_job = attempts.c.host.contains(f'"job":"{job}"')
    return sa.select(attempts.c.run_id).where(attempts.c.opened_at >= began_at, is_of_job)


def _is_older_than(run_id: str) -> sa.ColumnElement[bool]:
    """Whether a run comes after this one, which may have been removed: its id then says when its
    trainer began, and that is near."""
    other = runs.alias("other")
    known = sa.select(other.c.created_at).where(other.c.id == run_id).scalar_subquery()
    at = sa.func.coalesce(known, time_of(run_id))
    return sa.tuple_(runs.c.created_at, runs.c.id) < sa.tuple_(at, sa.literal(run_id))


async def list_open_runs(connection: AsyncConnection) -> list[OpenRun]:
    """Runs that have not ended."""
    found = await connection.execute(_LIST_OPEN)
    return [
        OpenRun(RunId(id_), RunState(state), attempt, created_at)
        for id_, state, attempt, created_at in found
    ]


async def list_open_grouped(connection: AsyncConnection) -> list[RunId]:
    """Runs of groups that have not ended."""
    query = sa.select(runs.c.id).where(IS_GOING_ON, runs.c.run_group.is_not(None))
    return [RunId(id_) for (id_,) in await connection.execute(query)]


async def list_group_peers(connection: AsyncConnection, run: Run, *, limit: int) -> list[RunId]:
    """The other runs of a run's group that are at least as far as it is, newest first."""
    query = (
        sa.select(runs.c.id)
        .where(runs.c.project == run.project, runs.c.run_group == run.group)
        .where(runs.c.id != run.id, runs.c.last_step >= run.last_step)
        .order_by(*NEWEST_FIRST)
        .limit(limit)
    )
    return [RunId(id_) for (id_,) in await connection.execute(query)]


async def count_by_state(connection: AsyncConnection) -> dict[RunState, int]:
    """Number of runs by state; states without runs are left out."""
    found = await connection.execute(
        sa.select(runs.c.state, sa.func.count()).group_by(runs.c.state)
    )
    return {RunState(state): count for state, count in found}


async def count_by_signing_key(connection: AsyncConnection) -> dict[str, int]:
    """Number of live runs by the signing key of their attempt; runs without one are left out."""
    query = (
        sa.select(attempts.c.signing_key, sa.func.count())
        .join(
            runs, (runs.c.id == attempts.c.run_id) & (runs.c.current_attempt == attempts.c.attempt)
        )
        .where(IS_GOING_ON, attempts.c.signing_key.is_not(None))
        .group_by(attempts.c.signing_key)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def update_run(connection: AsyncConnection, run_id: RunId, **values: object) -> None:
    await connection.execute(runs.update().where(runs.c.id == run_id).values(**values))


async def change_state(
    connection: AsyncConnection, found: OpenRun, state: RunState, *, at: float
) -> None:
    """Stores a run's state, unless the run has changed since it was read."""
    lost = {"lost_at": at} if state is RunState.LOST else {}
    await connection.execute(
        runs.update()
        .where(
            runs.c.id == found.id,
            runs.c.current_attempt == found.current_attempt,
            runs.c.state == found.state,
        )
        .values(state=state, **lost)
    )


async def list_given_up(connection: AsyncConnection, *, before: float) -> list[RunId]:
    """Runs that nobody closed and that have been silent since before a time."""
    found = await connection.scalars(sa.select(runs.c.id).where(_is_given_up(before)))
    return [RunId(run_id) for run_id in found]


async def end_given_up(
    connection: AsyncConnection, *, run_id: RunId, before: float, at: float, reason: str
) -> bool:
    """Ends such a run as failed, and its open attempts; returns whether it was still one."""
    values = {"state": RunState.FAILED, "ended_at": at}
    ended = await connection.execute(
        runs.update().where(runs.c.id == run_id, _is_given_up(before)).values(values)
    )
    if ended.rowcount == 0:
        return False
    is_open = (attempts.c.run_id == run_id) & attempts.c.closed_at.is_(None)
    closed = {"closed_at": at, "status": RunState.FAILED.value, "reason": reason}
    await connection.execute(attempts.update().where(is_open).values(closed))
    return True


def _is_given_up(before: float) -> sa.ColumnElement[bool]:
    """Lost since before a time; or brought in afterwards, so that nobody listens to it, and neither
    opened nor given an attempt since then."""
    is_lost = (runs.c.state == RunState.LOST.value) & (runs.c.lost_at < before)
    has_attempt = sa.exists().where(attempts.c.run_id == runs.c.id, attempts.c.opened_at >= before)
    is_unheard = (runs.c.current_attempt == 0) & (runs.c.created_at < before) & ~has_attempt
    return is_lost | (IS_GOING_ON & is_unheard)


async def delete_run(connection: AsyncConnection, run_id: RunId) -> None:
    """Removes the run's own row; the rest of it is removed in chunks afterwards."""
    await connection.execute(runs.delete().where(runs.c.id == run_id))


async def insert_attempt(connection: AsyncConnection, attempt: Attempt) -> None:
    await connection.execute(
        attempts.insert().values(
            run_id=attempt.run_id,
            attempt=attempt.attempt,
            token=attempt.token_hash,
            live=attempt.live,
            started_at=attempt.started_at,
            opened_at=attempt.opened_at,
            resume_step=attempt.resume_step,
            world_size=attempt.world_size,
            allow=" ".join(attempt.allow),
            host=msgspec.json.encode(attempt.host).decode(),
            signing_key=attempt.signing_key,
        )
    )


async def find_attempt(connection: AsyncConnection, run_id: RunId, attempt: int) -> Attempt | None:
    query = sa.select(attempts).where(attempts.c.run_id == run_id, attempts.c.attempt == attempt)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _attempt(row)


async def find_attempt_of_token(
    connection: AsyncConnection, run_id: RunId, token_hash: str
) -> int | None:
    """The number of the attempt of a run that was opened with a token."""
    of_token = (attempts.c.run_id == run_id) & (attempts.c.token == token_hash)
    number: int | None = await connection.scalar(sa.select(attempts.c.attempt).where(of_token))
    return number


async def note_outlived(
    connection: AsyncConnection, run_id: RunId, attempt: int, *, at: float
) -> None:
    """Notes that an attempt which nobody has closed still speaks after a newer one replaced it."""
    is_first = attempts.c.outlived_at.is_(None) & attempts.c.closed_at.is_(None)
    of_attempt = (attempts.c.run_id == run_id) & (attempts.c.attempt == attempt)
    await connection.execute(
        attempts.update().where(of_attempt, attempts.c.live, is_first).values(outlived_at=at)
    )


async def find_speaking_attempt(connection: AsyncConnection, run_id: RunId) -> int:
    """The number of the attempt by which a run is shown; 0 where there is none."""
    return await connection.scalar(sa.select(SPEAKING_ATTEMPT).where(runs.c.id == run_id)) or 0


async def list_attempts(
    connection: AsyncConnection, run_id: RunId, *, after: int = 0, limit: int | None = None
) -> list[Attempt]:
    """In order; `after` is the last one already seen."""
    query = (
        sa.select(attempts)
        .where(attempts.c.run_id == run_id, attempts.c.attempt > after)
        .order_by(attempts.c.attempt)
        .limit(limit)
    )
    return [_attempt(row) for row in await connection.execute(query)]


async def count_ranks(connection: AsyncConnection, run_id: RunId) -> dict[int, int]:
    """Number of ranks of each attempt of a run, by the attempt's number."""
    found = await connection.execute(
        sa.select(attempts.c.attempt, attempts.c.world_size).where(attempts.c.run_id == run_id)
    )
    return {row.attempt: row.world_size for row in found}


async def close_attempt(
    connection: AsyncConnection, run_id: RunId, attempt: int, **values: object
) -> None:
    """Stores how an attempt ended."""
    await connection.execute(
        attempts.update()
        .where(attempts.c.run_id == run_id, attempts.c.attempt == attempt)
        .values(**values)
    )


def _facts(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any]:
    """The fields of a ListedRun."""
    return {
        "id": row.id,
        "project": row.project,
        "name": row.name,
        "state": RunState(row.state),
        "policy": None if row.policy is None else PolicyMode(row.policy),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "current_attempt": row.current_attempt,
        "last_step": row.last_step,
        "group": row.run_group,
    }


def _attempt(row: sa.Row[tuple[object, ...]]) -> Attempt:
    return Attempt(
        run_id=row.run_id,
        attempt=row.attempt,
        token_hash=row.token,
        live=row.live,
        started_at=row.started_at,
        opened_at=row.opened_at,
        resume_step=row.resume_step,
        world_size=row.world_size,
        allow=tuple(row.allow.split()),
        host=msgspec.json.decode(row.host, type=dict[str, Scalar]),
        closed_at=row.closed_at,
        status=row.status,
        reason=row.reason,
        last_step=row.last_step,
        signing_key=row.signing_key,
    )
