"""All queries of the retention tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId, RunState
from runwatch_server.retention.ages import Ages
from runwatch_server.retention.tables import project_retention, run_retention
from runwatch_server.runs.tables import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAges:
    """The ages set for a run and for its project."""

    run_id: RunId
    project: str
    name: str
    ended_at: float | None
    pinned: bool
    own: Ages
    of_project: Ages


async def list_projects(connection: AsyncConnection) -> dict[str, Ages]:
    """The projects with ages of their own, by name."""
    query = sa.select(project_retention).order_by(project_retention.c.project)
    return {row["project"]: _ages(row) for row in (await connection.execute(query)).mappings()}


async def put_project(connection: AsyncConnection, project: str, ages: Ages) -> None:
    """Replaces the project's ages; only nulls removes them, so that the service's are in force."""
    is_project = project_retention.c.project == project
    await connection.execute(project_retention.delete().where(is_project))
    if ages != Ages():
        await connection.execute(
            project_retention.insert().values(project=project, **_columns(ages))
        )


async def put_run(connection: AsyncConnection, run_id: RunId, ages: Ages, *, pinned: bool) -> None:
    """Replaces the run's ages and pin."""
    await connection.execute(run_retention.delete().where(run_retention.c.run_id == run_id))
    row = {"run_id": run_id, "pinned": pinned, **_columns(ages)}
    await connection.execute(run_retention.insert().values(row))


async def find_run_ages(connection: AsyncConnection, run_id: RunId) -> RunAges | None:
    found = await _run_ages(connection, _QUERY.where(runs.c.id == run_id))
    return found[0] if found else None


async def list_ended(
    connection: AsyncConnection, *, after: RunId | None, limit: int, project: str | None = None
) -> list[RunAges]:
    """Ended runs, in the order of their ids."""
    query = _QUERY.where(runs.c.ended_at.is_not(None))
    if after is not None:
        query = query.where(runs.c.id > after)
    if project is not None:
        query = query.where(runs.c.project == project)
    return await _run_ages(connection, query.order_by(runs.c.id).limit(limit))


async def list_lost(
    connection: AsyncConnection, *, limit: int, project: str | None = None
) -> list[RunAges]:
    """Lost runs, in the order of their ids: they have not ended yet."""
    query = _QUERY.where(runs.c.state == RunState.LOST.value)
    if project is not None:
        query = query.where(runs.c.project == project)
    return await _run_ages(connection, query.order_by(runs.c.id).limit(limit))


_NAMES = tuple(Ages.__struct_fields__)
_QUERY = (
    sa.select(
        runs.c.id,
        runs.c.project,
        runs.c.name,
        runs.c.ended_at,
        run_retention.c.pinned,
        *(run_retention.c[name].label(f"own_{name}") for name in _NAMES),
        *(project_retention.c[name] for name in _NAMES),
    )
    .outerjoin(run_retention, run_retention.c.run_id == runs.c.id)
    .outerjoin(project_retention, project_retention.c.project == runs.c.project)
)


async def _run_ages(
    connection: AsyncConnection, query: sa.Select[*tuple[Any, ...]]
) -> list[RunAges]:
    rows: Sequence[Any] = (await connection.execute(query)).mappings().all()
    return [
        RunAges(
            run_id=RunId(row["id"]),
            project=row["project"],
            name=row["name"],
            ended_at=row["ended_at"],
            pinned=bool(row["pinned"]),
            own=Ages(*(row[f"own_{name}"] for name in _NAMES)),
            of_project=_ages(row),
        )
        for row in rows
    ]


def _ages(row: Any) -> Ages:
    return Ages(*(row[name] for name in _NAMES))


def _columns(ages: Ages) -> dict[str, float | None]:
    return {name: getattr(ages, name) for name in _NAMES}
