"""`/runs/{run_id}/history`: which segment is in force for which steps, and which steps were
undone."""

from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

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
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import NextNumber

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["telemetry"])

_MOST: Final = 10_000
"""Stretches in an answer."""


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
    """The ranks of the current attempt that have sent steps; only in the first page."""
    next_token: str | None = None
    """Pass it as `next_token` to get the next page of stretches; null: this is the last one."""


@router.get(
    "/history",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=HistoryView),
)
async def get_history(
    services: CurrentServices,
    run: VisibleRun,
    next_token: NextNumber = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
) -> Response:
    """Rank 0's steps as stretches of segments, and the last step and the host of each rank."""
    first = next_token or 0
    history = await read_history(services, run.id, run.current_attempt, first=first, limit=limit)
    return json_response(history)


async def read_history(
    services: Services, run_id: RunId, attempt: int, *, first: int = 0, limit: int = _MOST
) -> HistoryView:
    """A page of a run's history, from this stretch on; the ranks are those of the attempt."""
    async with services.database.read() as connection:
        places = attempts_in_time(await list_attempts(connection, run_id))
        segments = await segment_queries.list_segments(connection, run_id, 0)
        found = [row.stretch for row in segments if row.attempt in places]
        ranks = await segment_queries.last_steps_of_ranks(connection, run_id, attempt)
        hosts = await find_hosts(connection, run_id, attempt)
    in_force = effective_history(found, places)
    placed = list(enumerate([*in_force, *undone(found, in_force)]))

    def view(at: tuple[int, Stretch]) -> HistoryStretch:
        return _view(at[1], in_force=at[0] < len(in_force))

    stretches, token = answer_of(placed[first:], limit, lambda at: at[0] + 1, view)
    views = [RankView(rank, last_step, hosts.get(rank)) for rank, last_step in ranks.items()]
    return HistoryView(stretches, views if first == 0 else [], token)


def _view(stretch: Stretch, *, in_force: bool) -> HistoryStretch:
    return HistoryStretch(
        stretch.attempt, stretch.segment, stretch.first_step, stretch.last_step, in_force
    )
