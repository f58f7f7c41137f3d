"""`/runs/{run_id}/kept`: how long each kind of data of a run is kept, as a part of its page."""

import math
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.page.rendering import render
from runwatch_server.retention.ages import Ages, kept_of
from runwatch_server.runs.access import VisibleRun
from runwatch_server.runs.queries import Run
from runwatch_server.services import CurrentServices, Services

router: Final = APIRouter(include_in_schema=False)

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class KeptPart:
    """One kind of data that is stored of a run."""

    name: str
    days: float
    """Days after the run's end; infinity: for ever."""
    until: float | None
    """Unix seconds; None if for ever, or not yet known."""

    @property
    def is_for_ever(self) -> bool:
        return math.isinf(self.days)


@router.get("/runs/{run_id}/kept", dependencies=[require_to_open(KeyScope.READ)])
async def show_kept(request: Request, services: CurrentServices, run: VisibleRun) -> Response:
    return render(request, "run_kept.html", run=run, **await kept_of_run(services, run))


async def kept_of_run(services: Services, run: Run) -> dict[str, Any]:
    """The template's values beside the run."""
    standing = await services.retention.standing(run.id)
    parts = parts_of(standing.in_force, ended_at=run.ended_at)
    return {"standing": standing, "kept_parts": parts, "has_own_ages": standing.own != Ages()}


def parts_of(ages: Ages, *, ended_at: float | None) -> list[KeptPart]:
    """The kinds of data and their ages; `ages` are those in force, `ended_at` is the run's end in
    Unix seconds."""
    kept = kept_of(ages)
    named = {
        "Frames, histograms": kept.raw_days,
        "Frames around alerts": kept.evidence_days,
        "Layers' rollups": kept.rollup_days,
    }
    return [KeptPart(name, days, _until(days, ended_at)) for name, days in named.items()]


def _until(days: float, ended_at: float | None) -> float | None:
    return None if ended_at is None or math.isinf(days) else ended_at + days * _DAY_S
