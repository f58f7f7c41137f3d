"""The run that a request's path names, if the asker may see it."""

from typing import Annotated

from fastapi import Depends

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
"""The run as it is kept. 404 where there is none, 403 where the key is bound elsewhere."""

VisibleRunId = Annotated[RunId, Depends(_visible_run_id)]
"""Only its id, checked alike but without a query each time."""
