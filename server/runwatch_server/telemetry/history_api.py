"""`/runs/{run_id}/history`: which segment is in force for which steps, and which steps were
undone."""

from typing import Final

import msgspec
from fastapi import APIRouter, Response

from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.runs.access import VisibleRun
from runwatch_server.runs.queries import list_attempts
from runwatch_server.services import CurrentServices, Services
from runwatch_server.telemetry import segment_queries
from runwatch_server.telemetry.history import Stretch, attempts_in_time, effective_history, undone
from runwatch_server.telemetry.host_queries import find_hosts
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["telemetry"])


class HistoryStretch(msgspec.Struct, frozen=True):
    attempt: int
    segment: int
    first_step: int
    last_step: int
    in_force: bool
    """False if a rollback or a later attempt has replaced these steps."""


class RankView(msgspec.Struct, frozen=True):
    rank: int
    last_step: int
    host: str | None
    """Its host's name; null if it is unknown."""


class HistoryView(msgspec.Struct, frozen=True):
    stretches: list[HistoryStretch]
    """In the order of steps, those in force first."""
    ranks: list[RankView]
    """The ranks of the current attempt that have sent steps."""


@router.get(
    "/history",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=HistoryView),
)
async def get_history(services: CurrentServices, run: VisibleRun) -> Response:
    """Rank 0's steps as stretches of segments, and the last step and the host of each rank."""
    return json_response(await read_history(services, run.id, run.current_attempt))


async def read_history(services: Services, run_id: RunId, attempt: int) -> HistoryView:
    async with services.database.read() as connection:
        places = attempts_in_time(await list_attempts(connection, run_id))
        segments = await segment_queries.list_segments(connection, run_id, 0)
        found = [row.stretch for row in segments if row.attempt in places]
        ranks = await segment_queries.last_steps_of_ranks(connection, run_id, attempt)
        hosts = await find_hosts(connection, run_id, attempt)
    in_force = effective_history(found, places)
    return HistoryView(
        [
            *(_view(stretch, in_force=True) for stretch in in_force),
            *(_view(stretch, in_force=False) for stretch in undone(found, in_force)),
        ],
        [RankView(rank, last_step, hosts.get(rank)) for rank, last_step in ranks.items()],
    )


def _view(stretch: Stretch, *, in_force: bool) -> HistoryStretch:
    return HistoryStretch(
        stretch.attempt, stretch.segment, stretch.first_step, stretch.last_step, in_force
    )
