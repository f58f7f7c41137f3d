"""The run named in a request's path, if the caller may see it, and the attempt it comes from."""

from typing import Annotated

from fastapi import Depends, Header

from runwatch.messages import ATTEMPT_TOKEN_HEADER
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import CurrentPrincipal
from runwatch_server.runs.queries import Run
from runwatch_server.services import CurrentServices


async def _visible_run(
    run_id: RunId, services: CurrentServices, principal: CurrentPrincipal
) -> Run:
    return await services.runs.find(run_id, principal)


async def _visible_run_id(
    run_id: RunId, services: CurrentServices, principal: CurrentPrincipal
) -> RunId:
    await services.runs.check_access(run_id, principal)
    return run_id


VisibleRun = Annotated[Run, Depends(_visible_run)]
"""The stored run. 404 if there is none, 403 if the key is bound to another project."""

VisibleRunId = Annotated[RunId, Depends(_visible_run_id)]
"""Only the run's id, checked in the same way, but usually without a query."""

AttemptToken = Annotated[str, Header(alias=ATTEMPT_TOKEN_HEADER, max_length=128)]
"""The token with which the trainer opened its attempt."""


async def _proven_attempt(
    run_id: VisibleRunId, services: CurrentServices, token: AttemptToken = ""
) -> int:
    return await services.runs.proven_attempt(run_id, token)


ProvenAttempt = Annotated[int, Depends(_proven_attempt)]
"""The number of the attempt that the request proves to come from. 403 if it proves none."""
