"""`/runs/{run_id}`: what is happening in a run, in which layer, and since when."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from runwatch.frames import MAX_STEP
from runwatch.rules import IN_CODE_NAMES
from runwatch.vocabulary import Severity
from runwatch_server.alerts.records import OPEN_STATES, AlertFilter, AlertRecord, Resolution
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.fleet.records import owner_of
from runwatch_server.page.alert_groups import grouped
from runwatch_server.page.chart_list import MOST_OPEN, charts_of
from runwatch_server.page.kept_api import kept_of_run
from runwatch_server.page.rank_hosts import ranks_of_hosts
from runwatch_server.page.rendering import render
from runwatch_server.page.run_actions_api import actions_on_run
from runwatch_server.runs.access import VisibleRun
from runwatch_server.runs.queries import Attempt, Run, find_speaking_attempt
from runwatch_server.services import CurrentServices, Services
from runwatch_server.telemetry import queries, segment_queries
from runwatch_server.telemetry.history_api import read_history
from runwatch_server.telemetry.host_queries import find_hosts
from runwatch_server.telemetry.segment_queries import SegmentRow

router: Final = APIRouter(include_in_schema=False)

_MOST_ALERTS: Final = 100
_BEHIND_S: Final = 10.0
"""Delay in seconds from which the page says that judging of a training run is behind; it always is,
by a frame."""


@router.get("/runs/{run_id}", dependencies=[require_to_open(KeyScope.READ)])
async def show_run(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    run: VisibleRun,
    step: Annotated[int | None, Query(ge=0, le=MAX_STEP)] = None,
    first_step: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
    layer: str | None = None,
) -> Response:
    """A run's page. `step` and `layer` are selected, `from` and `to` are shown: links lead to where
    something happened."""
    async with services.database.read() as connection:
        metrics = await queries.list_metrics(connection, run.id)
    layouts = await services.layouts.all(run.id)
    history = await read_history(services, run.id, run.current_attempt)
    stats = list(dict.fromkeys(stat for layout in reversed(layouts) for stat in layout.stats))
    charts = charts_of(metrics)
    told = {
        "run": run.id,
        "first": min((one.first_step for one in history.stretches), default=0),
        "last": max((one.last_step for one in history.stretches), default=0),
        "step": step,
        "from": first_step,
        "to": last_step,
        "layer": layer,
        "history": history,
        "live": not run.state.is_ended,
    }
    return render(
        request,
        "run.html",
        **(await actions_on_run(services, run, principal) | await _fresh(services, run)),
        **await kept_of_run(services, run),
        charts=charts[:MOST_OPEN],
        more_charts=charts[MOST_OPEN:],
        stats=stats,
        ranks=[view.rank for view in history.ranks],
        metrics=metrics,
        told=told,
        config_text=json.dumps(run.config, indent=2, ensure_ascii=False),
    )


@router.get("/runs/{run_id}/fresh", dependencies=[require_to_open(KeyScope.READ)])
async def show_fresh(request: Request, services: CurrentServices, run: VisibleRun) -> Response:
    """The parts of the run's page that change, for its script."""
    return render(request, "run_fresh.html", **await _fresh(services, run))


async def _fresh(services: Services, run: Run) -> dict[str, Any]:
    """What the changing parts need: the banner, the attempts, and where the run trains."""
    attempts = await services.runs.list_attempts(run.id)
    layouts = await services.layouts.all(run.id)
    async with services.database.read() as connection:
        number = await find_speaking_attempt(connection, run.id)
        last_step_at = await queries.newest_arrival(connection, run.id, number)
        segments = await segment_queries.list_segments(connection, run.id, 0)
        rank_hosts = await find_hosts(connection, run.id, number)
    current = next((one for one in attempts if one.attempt == number), None)
    # Read before the alerts: frames judged in between may be reported as behind, but none is
    # overlooked.
    unjudged_since = await _unjudged_since(services, run)
    alerts = await _alerts_that_matter(services, run, number)
    pulse = await services.pulses.latest(run)
    host: Mapping[str, object] = {} if current is None else current.host
    return {
        "run": run,
        "policy": run.policy or services.settings.policy,
        "owner": owner_of(run.config, host),
        "hostname": host.get("hostname"),
        "hosts": ranks_of_hosts(rank_hosts),
        "rank_hosts": rank_hosts,
        "num_layers": max((len(layout.layers) for layout in layouts), default=0),
        "attempt": current,
        "attempts": attempts,
        "reached": _reached(segments),
        "last_step_at": last_step_at or run.ended_at,
        "alerts": grouped(alerts),
        "unjudged_since": unjudged_since,
        "latest": pulse.latest,
        "steps_per_s": pulse.steps_per_s,
        "progress": _progress(run, current),
    }


def _reached(segments: Sequence[SegmentRow]) -> Mapping[int, int]:
    """The last step of each attempt, including undone ones."""
    last_steps: dict[int, int] = {}
    for one in segments:
        last_steps[one.attempt] = max(one.last_step, last_steps.get(one.attempt, one.last_step))
    return last_steps


async def _unjudged_since(services: Services, run: Run) -> float | None:
    since = await services.alerts.unjudged_since(run.id)
    if since is None or run.state.is_ended:
        return since
    return since if services.clock.wall() - since > _BEHIND_S else None


async def _alerts_that_matter(services: Services, run: Run, attempt: int) -> list[AlertRecord]:
    """The alerts that people are notified of: open ones, those of the attempt that settled worse
    until they are acknowledged and, for a run that is over, those that were open when that attempt
    ended; the most urgent first. A NonFinite alert on one rank is shown with those of the ranks
    that it reached."""
    wanted = AlertFilter(run_id=run.id, states=OPEN_STATES, inhibited=False, shadow=False)
    found = await _with_ranks_reached(services, wanted)
    of_people = AlertFilter(
        run_id=run.id,
        severities=(Severity.CRITICAL, Severity.WARNING),
        inhibited=False,
        shadow=False,
    )
    settled = replace(of_people, resolution=Resolution.SETTLED_WORSE, acked=False)
    left = await services.alerts.list(settled, limit=_MOST_ALERTS)
    if run.state.is_ended:
        at_end = replace(of_people, resolution=Resolution.RUN_ENDED)
        left += await _with_ranks_reached(services, at_end)
    found += [alert for alert in left if alert.attempt == attempt]
    return sorted(found, key=_urgency)


async def _with_ranks_reached(services: Services, wanted: AlertFilter) -> list[AlertRecord]:
    found = await services.alerts.list(wanted, limit=_MOST_ALERTS)
    for rule in sorted(IN_CODE_NAMES & {alert.rule for alert in found}):
        reached = replace(wanted, inhibited=True, rule=rule)
        found += await services.alerts.list(reached, limit=_MOST_ALERTS)
    return found


def _urgency(alert: AlertRecord) -> tuple[bool, int, int]:
    """Firing before pending, critical before the others, the earliest onset first."""
    is_quiet = alert.firing_step is None
    return (is_quiet, -alert.severity.gravity, alert.onset_step)


def _progress(run: Run, attempt: Attempt | None) -> float | None:
    """The share of its steps that a run has done, if its configuration says how many there are."""
    total = next(
        (run.config[name] for name in ("max_steps", "total_steps", "num_steps")
         if isinstance(run.config.get(name), int | float)),
        None,
    )  # fmt: skip
    if not isinstance(total, int | float) or run.last_step is None:
        return None
    if not 0 < total < math.inf or attempt is None:
        return None
    return min(1.0, (run.last_step + 1) / total)
