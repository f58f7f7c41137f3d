"""`/runs`: runs, their attempts and heartbeats."""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response

from runwatch.frames import MAX_ATTEMPT, Scalar
from runwatch.messages import (
    SIGNATURES,
    UNDERSTANDS_HEADER,
    AttemptClose,
    AttemptOpen,
    AttemptOpened,
    Heartbeat,
    HeartbeatReply,
    RunOpen,
)
from runwatch.vocabulary import PolicyMode, RunId, RunState
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.runs.access import AttemptToken, ProvenAttempt, VisibleRun, VisibleRunId
from runwatch_server.runs.checks import check_proven
from runwatch_server.runs.queries import Attempt, ListedRun, Run
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import AttemptInPath, JobId, NextToken

router: Final = APIRouter(prefix="/api/v1/runs", tags=["runs"])


class ListedRunView(msgspec.Struct, frozen=True):
    id: RunId
    name: str
    project: str
    group: str | None
    """Name shared by runs that repeat one another; null: none."""
    state: RunState
    policy: PolicyMode
    """The policy in force: the run's own, or else the service's."""
    created_at: datetime
    ended_at: datetime | None
    current_attempt: int
    last_step: int | None


class RunView(ListedRunView, frozen=True):
    config: dict[str, Any]


class RunList(msgspec.Struct, frozen=True):
    runs: list[ListedRunView]
    """Without their configurations, which may be large: `GET /runs/{run_id}` has that of each."""
    next_token: str | None
    """Pass it as `next_token` to get the next page; null: this is the last one."""


class RunChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    """The new name; null: unchanged."""
    policy: PolicyMode | None = None
    """What rules may do to the run; null: unchanged."""


class AttemptView(msgspec.Struct, frozen=True):
    attempt: int
    live: bool
    started_at: datetime
    opened_at: datetime
    resume_step: int
    world_size: int
    allow: tuple[str, ...]
    host: dict[str, Scalar]
    closed_at: datetime | None
    status: str | None
    reason: str | None
    last_step: int | None


class AttemptList(msgspec.Struct, frozen=True):
    attempts: list[AttemptView]
    next_token: str | None = None
    """Pass it as `next_token` to get the next page; null: this is the last one."""


@router.post(
    "",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(RunOpen, RunView, also=201, refuses=[409]),
)
async def open_run(
    services: CurrentServices,
    principal: CurrentPrincipal,
    wanted: Annotated[RunOpen, Depends(json_body(RunOpen))],
) -> Response:
    """Register a run: 201 if it is new, 200 if it is known already."""
    run, is_new = await services.runs.open(wanted, principal)
    if is_new:
        services.quota.note(run.project, len(msgspec.json.encode(run.config)))
    return json_response(_view(run, services), 201 if is_new else 200)


@router.get("", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RunList))
async def list_runs(
    services: CurrentServices,
    principal: CurrentPrincipal,
    name: str | None = None,
    project: str | None = None,
    group: str | None = None,
    state: RunState | None = None,
    job: JobId = None,
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Runs, newest first; `name`, `project` and `group` select those that are called exactly so,
    and `job` those that were started with it as their RUNWATCH_RUN_ID, whatever ids they have."""
    found = await services.runs.list_runs(
        principal,
        name=name,
        project=project,
        group=group,
        state=state,
        job=job,
        before=next_token,
        limit=limit + 1,
    )
    shown, token = answer_of(
        found, limit, lambda run: run.id, lambda run: ListedRunView(**_facts(run, services))
    )
    return json_response(RunList(shown, token))


@router.get(
    "/{run_id}", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RunView)
)
async def get_run(services: CurrentServices, run: VisibleRun) -> Response:
    """A run and its configuration."""
    return json_response(_view(run, services))


@router.patch(
    "/{run_id}",
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(RunChange, RunView),
)
async def change_run(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: VisibleRunId,
    change: Annotated[RunChange, Depends(json_body(RunChange))],
) -> Response:
    """Change a run's name or policy."""
    run = await services.runs.change(
        run_id, name=change.name, policy=change.policy, by=principal.actor
    )
    return json_response(_view(run, services))


@router.delete(
    "/{run_id}",
    status_code=204,
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=documented(refuses=[409]),
)
async def delete_run(
    services: CurrentServices, principal: CurrentPrincipal, run_id: VisibleRunId
) -> Response:
    """Delete a run that has ended, with all its telemetry and alerts. Receivers that were told of
    an alert are first told that it is over; one that does not answer is waited for 10 s."""
    await services.run_removal.notify(run_id)
    await services.runs.delete(run_id, by=principal.actor)
    return Response(status_code=204)


@router.post(
    "/{run_id}/attempts",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(AttemptOpen, AttemptOpened, refuses=[409]),
)
async def open_attempt(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: VisibleRunId,
    wanted: Annotated[AttemptOpen, Depends(json_body(AttemptOpen))],
    understands: Annotated[str, Header(alias=UNDERSTANDS_HEADER, max_length=256)] = "",
) -> Response:
    """Open an attempt: one life of the run's processes. The same token gives the same attempt, and
    every further request about it must have that token. A trainer that understands `signatures`
    receives the secret that signs its commands."""
    signer = services.signer
    can_check = SIGNATURES in understands.split()
    key = signer.current_key if can_check else None
    attempt = await services.runs.open_attempt(run_id, wanted, by=principal.actor, signing_key=key)
    kept = attempt.signing_key
    if not can_check or kept is None or not signer.holds(kept):
        return json_response(AttemptOpened(attempt.attempt))
    secret = signer.trainers_secret(run_id, attempt.attempt, kept)
    return json_response(AttemptOpened(attempt.attempt, secret))


@router.get(
    "/{run_id}/attempts",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=AttemptList),
)
async def list_attempts(
    services: CurrentServices,
    run_id: VisibleRunId,
    next_token: Annotated[int, Query(ge=0, le=MAX_ATTEMPT)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """The attempts of a run, in order."""
    found = await services.runs.list_attempts(run_id, after=next_token, limit=limit + 1)
    shown, token = answer_of(found, limit, lambda attempt: attempt.attempt, _attempt_view)
    return json_response(AttemptList(shown, token))


@router.post(
    "/{run_id}/attempts/{attempt}/close",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(AttemptClose, RunView, refuses=[409]),
)
async def close_attempt(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: VisibleRunId,
    attempt: AttemptInPath,
    close: Annotated[AttemptClose, Depends(json_body(AttemptClose))],
    token: AttemptToken = "",
) -> Response:
    """Close an attempt that ends in order. A key with the scope `control` needs no token: it closes
    the attempt of a trainer that can no longer do so."""
    if not principal.allows(KeyScope.CONTROL):
        check_proven(attempt, await services.runs.proven_attempt(run_id, token))
    run = await services.runs.close_attempt(run_id, attempt, close, by=principal.actor)
    services.delivery.release(run_id)
    return json_response(_view(run, services))


@router.post(
    "/{run_id}/heartbeat",
    dependencies=[require(KeyScope.INGEST)],
    openapi_extra=documented(Heartbeat, HeartbeatReply, refuses=[409]),
)
async def heartbeat(
    services: CurrentServices,
    run_id: VisibleRunId,
    proven: ProvenAttempt,
    beat: Annotated[Heartbeat, Depends(json_body(Heartbeat))],
) -> Response:
    """A sign of life with the current phase; the reply carries commands."""
    check_proven(beat.attempt, proven)
    await services.runs.note_heartbeat(run_id, beat)
    commands = await services.delivery.pending(run_id, beat.attempt, beat.rank)
    return json_response(HeartbeatReply(services.clock.wall(), commands))


def _view(run: Run, services: CurrentServices) -> RunView:
    return RunView(**_facts(run, services), config=dict(run.config))


def _facts(run: ListedRun, services: CurrentServices) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "project": run.project,
        "group": run.group,
        "state": run.state,
        "policy": run.policy or services.settings.policy,
        "created_at": rfc3339(run.created_at),
        "ended_at": rfc3339_if_any(run.ended_at),
        "current_attempt": run.current_attempt,
        "last_step": run.last_step,
    }


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        live=attempt.live,
        started_at=rfc3339(attempt.started_at),
        opened_at=rfc3339(attempt.opened_at),
        resume_step=attempt.resume_step,
        world_size=attempt.world_size,
        allow=attempt.allow,
        host=dict(attempt.host),
        closed_at=rfc3339_if_any(attempt.closed_at),
        status=attempt.status,
        reason=attempt.reason,
        last_step=attempt.last_step,
    )
