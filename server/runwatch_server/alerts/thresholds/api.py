"""`/runs/{run_id}/thresholds`: the thresholds of rules for a series, to draw over its chart."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Response

from runwatch.frames import MAX_STEP
from runwatch.rules import Rows, Rule
from runwatch.rules.observations import rule_name
from runwatch.rules.thresholds import (
    Threshold,
    has_threshold,
    is_level,
    looks_across_layers,
    threshold,
)
from runwatch.vocabulary import Scope
from runwatch_server.alerts.thresholds.judged_rows import ends, read_rows, recorded_names
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import UnprocessableError
from runwatch_server.runs.access import VisibleRun
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_response
from runwatch_server.web.parameters import check_span

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["alerts"])

MAX_MOVING_STEPS: Final = 4096
"""Most steps for thresholds that follow the run, which have to be evaluated step by step."""
MAX_STEPS_OF_ALL_LAYERS: Final = 1024
"""Most steps for rules that compare layers, where all layers are evaluated: with 300 layers, each
such rule takes about a second."""


class ThresholdView(msgspec.Struct, frozen=True):
    rule: str
    severity: str
    direction: str
    """`above`: the rule fails only above the threshold; `below`: only below it."""
    steps: list[int]
    levels: list[float]


class ThresholdList(msgspec.Struct, frozen=True):
    thresholds: list[ThresholdView]
    num_left_out: int
    """Number of rules left out because their threshold follows the run and too many steps were
    requested."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The series whose thresholds are requested."""

    name: str
    """The series' name, as rules write it."""
    layer: str | None = None
    """The layer; None for a metric of the run."""

    @property
    def scope(self) -> Scope:
        return Scope.RUN if self.layer is None else Scope.LAYER


@router.get(
    "/thresholds",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=ThresholdList),
)
async def get_thresholds(
    services: CurrentServices,
    run: VisibleRun,
    first_step: Annotated[int, Query(alias="from", ge=0, le=MAX_STEP)],
    last_step: Annotated[int, Query(alias="to", ge=0, le=MAX_STEP)],
    metric: str | None = None,
    layer: str | None = None,
    stat: str | None = None,
) -> Response:
    """The threshold at each step of those rules in force for the run that compare a series with one
    (`metric=`, or `layer=` and `stat=`).

    Crossing its threshold is necessary for a rule to fire, but it may require more.
    """
    recorded = await recorded_names(services, run.id)
    if metric is not None and layer is None and stat is None:
        judged = Judged(rule_name(recorded.name_of(metric)))
    elif metric is None and layer is not None and stat is not None:
        judged = Judged(stat, layer)
    else:
        raise UnprocessableError("invalid_request", "query: wanted metric=, or layer= and stat=")
    check_span(first_step, last_step)
    in_force = (await services.rules.in_force(run.project)).rules
    wanted = [rule for rule in in_force if has_threshold(rule, judged.name, judged.scope)]
    num_steps = last_step - first_step + 1
    shown = [
        rule
        for rule in wanted
        if is_level(rule, judged.name) or num_steps <= _most_moving_steps(rule)
    ]
    rules = [rule for rule in shown if not is_level(rule, judged.name)]
    rows = await read_rows(services, run.id, rules, judged.layer, first_step, last_step, recorded)
    found = await asyncio.to_thread(
        lambda: [_view(rule, judged, rows, first_step, last_step) for rule in shown]
    )
    told = [view for view in found if view.steps]
    return json_response(ThresholdList(told, len(wanted) - len(shown)))


def _most_moving_steps(rule: Rule) -> int:
    return MAX_STEPS_OF_ALL_LAYERS if looks_across_layers(rule) else MAX_MOVING_STEPS


def _view(rule: Rule, judged: Judged, rows: Rows, first_step: int, last_step: int) -> ThresholdView:
    if is_level(rule, judged.name):
        rows = ends(judged.name, judged.layer, first_step, last_step)
    found = threshold(rule, judged.name, rows, judged.layer)
    within = found.steps >= first_step
    return ThresholdView(
        rule=rule.name,
        severity=rule.severity.value,
        direction=found.direction,
        steps=found.steps[within].tolist(),
        levels=_rounded(found, within),
    )


def _rounded(
    found: Threshold, within: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> list[float]:
    """Rounded to six digits, which is what a chart can show."""
    return [float(f"{level:.6g}") for level in found.levels[within].tolist()]
