"""`/metrics`, `/healthz` and `/readyz`: for Prometheus, and for what supervises the process."""

import sqlite3
from collections.abc import Collection
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

import runwatch
from runwatch.vocabulary import RunId
from runwatch_server.alerts.queries import count_by_run
from runwatch_server.auth.guard import CurrentPrincipal, public, reader_of, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.db import SAFE_SQLITE
from runwatch_server.errors import ForbiddenError, OverloadedError
from runwatch_server.fleet.pulse import visible_runs
from runwatch_server.monitoring.run_figures import Fleet, RunFacts
from runwatch_server.runs.queries import count_by_state, find_runs
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(tags=["health"])

_DEAD_S: Final = 60.0
"""If the loop that judges silence has done nothing for this long, it counts as dead."""


class HealthView(msgspec.Struct, frozen=True):
    status: str
    version: str
    disk: str
    """`ok`, or `full`: frames are refused."""


class ReadinessView(msgspec.Struct, frozen=True):
    status: str
    num_runs_not_judged: int
    runs_not_judged: tuple[RunId, ...]
    """Those of them that the request's key may read; without a key none."""
    frames_waiting: int
    """Frames that are stored and not judged yet: alerts come late by as much."""
    judging_s: float
    """For how long the judgement under way has been running; keeps growing if it is stuck."""
    silence_judged_s: float
    """Seconds since silence was last judged; after 60 the service is not ready."""
    writes_waiting: int
    disk: str
    """`ok`, or `full`: frames are refused, and everything else is accepted."""
    num_projects_full: int
    """Projects whose frames are refused because they have stored their quota."""
    replica: str
    database: str
    sqlite: str
    sqlite_is_safe: bool
    signing: str
    """`on`, `off`, or the number of live runs whose attempts were opened under a signing key that
    this replica does not have: it cannot command them."""


@router.get(
    "/metrics",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(texts=[CONTENT_TYPE_LATEST]),
)
async def get_metrics(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """Metrics for Prometheus. The scrape job needs a key with the scope `read` for all projects."""
    if principal.project is not None:
        raise ForbiddenError("foreign_project", "These cover all projects; your key covers one.")
    runs = services.metrics.runs
    runs.refresh(await _fleet(services, runs.run_ids), now=services.clock.wall())
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/healthz", dependencies=[public()], openapi_extra=documented(answer=HealthView))
async def get_health(services: CurrentServices) -> Response:
    """Liveness: the process answers. Also says whether its disk is too full for frames."""
    return json_response(HealthView("ok", runwatch.__version__, _disk(services)))


@router.get(
    "/readyz",
    dependencies=[public()],
    openapi_extra=documented(answer=ReadinessView, refuses=[503]),
)
async def get_readiness(request: Request, services: CurrentServices) -> Response:
    """Readiness: the database answers and commits, the writer keeps up and runs are being judged. A
    disk that is too full for frames, and a judgement that is behind or stuck, are no reason to turn
    people and commands away: they are told."""
    await services.database.ping()  # first: all else waits for it
    if services.database.is_losing:
        raise OverloadedError("not_committed", "The database does not commit: see the log.")
    if services.database.is_overloaded:
        raise OverloadedError("writer_queue_full", "The writer does not keep up.")
    health = services.evaluators.health
    if not health.is_running:
        raise OverloadedError("evaluators_dead", "Frames are stored, but nobody judges them.")
    if services.ticker.age_s > _DEAD_S:
        raise OverloadedError("silence_not_judged", "Nobody checks which runs have gone silent.")
    return json_response(
        ReadinessView(
            status="ready",
            num_runs_not_judged=len(health.failing_runs),
            runs_not_judged=await _named(request, services, health.failing_runs),
            frames_waiting=health.num_waiting,
            judging_s=round(health.busy_s, 3),
            silence_judged_s=round(services.ticker.age_s, 3),
            writes_waiting=services.database.num_waiting,
            disk=_disk(services),
            num_projects_full=services.quota.num_full,
            replica=services.replica.name,
            database=services.database.engine,
            sqlite=sqlite3.sqlite_version,
            sqlite_is_safe=sqlite3.sqlite_version_info >= SAFE_SQLITE,
            signing=await _signing(services),
        )
    )


async def _named(
    request: Request, services: Services, run_ids: tuple[RunId, ...]
) -> tuple[RunId, ...]:
    """Those of the runs that whoever asks may see."""
    reader = await reader_of(request) if run_ids else None
    if reader is None or reader.project is None:
        return () if reader is None else run_ids
    seen = await visible_runs(services.database, run_ids, reader.project)
    return tuple(run.id for run in seen)


def _disk(services: Services) -> str:
    return "full" if services.disk.is_full else "ok"


async def _signing(services: Services) -> str:
    foreign = await services.commands.foreign_keys()
    if foreign:
        return f"{sum(foreign.values())} runs under keys that are not here: {', '.join(foreign)}"
    return "off" if services.signer.current_key is None else "on"


async def _fleet(services: Services, run_ids: Collection[RunId]) -> Fleet:
    async with services.database.read() as connection:
        found = await find_runs(connection, run_ids)
        return Fleet(
            num_by_state=await count_by_state(connection),
            facts={
                run.id: RunFacts(run.name, run.project, run.state, run.last_step) for run in found
            },
            alerts=await count_by_run(connection, run_ids),
        )
