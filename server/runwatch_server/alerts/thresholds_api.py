"""`/runs/{run_id}/thresholds`: the levels by which rules judge a metric, to be drawn over it."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Response

from runwatch.frames import MAX_STEP
from runwatch.nonfinite import ABSENT_64
from runwatch.rules import Rows, Rule
from runwatch.rules.observations import rule_name
from runwatch.rules.thresholds import (
    Threshold,
    has_threshold,
    is_level,
    rows_before,
    series_needed,
    threshold,
)
from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.http import documented, json_response
from runwatch_server.runs.access import VisibleRun
from runwatch_server.services import CurrentServices, Services
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.reading import Series, Window

router: Final = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["alerts"])

MAX_MOVING_STEPS: Final = 4096
"""Levels that follow the run are judged step by step, so only over as many."""


class ThresholdView(msgspec.Struct, frozen=True):
    rule: str
    severity: str
    direction: str
    """`above`: the rule fails only above the level; `below`: only below."""
    steps: list[int]
    levels: list[float]


class ThresholdList(msgspec.Struct, frozen=True):
    thresholds: list[ThresholdView]
    num_left_out: int
    """Rules whose level follows the run, left out because too many steps were asked for."""


@router.get(
    "/thresholds",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=ThresholdList),
)
async def get_thresholds(
    services: CurrentServices,
    run: VisibleRun,
    metric: str,
    first_step: Annotated[int, Query(alias="from", ge=0, le=MAX_STEP)],
    last_step: Annotated[int, Query(alias="to", ge=0, le=MAX_STEP)],
) -> Response:
    """Of the run's rules in force that compare the metric with a level, that level at each step.

    Passing it is what a rule needs at least; it may want more before it fires.
    """
    name = rule_name(metric)
    in_force = (await services.rules.in_force(run.project)).rules
    wanted = [rule for rule in in_force if has_threshold(rule, name)]
    moving = [rule for rule in wanted if not is_level(rule, name)]
    if last_step - first_step >= MAX_MOVING_STEPS:
        wanted, num_left_out = [rule for rule in wanted if rule not in moving], len(moving)
        moving = []
    else:
        num_left_out = 0
    rows = await _rows(services, run.id, moving, first_step, last_step)
    found = await asyncio.to_thread(
        lambda: [_view(rule, name, rows, first_step, last_step) for rule in wanted]
    )
    return json_response(ThresholdList([view for view in found if view.steps], num_left_out))


async def _rows(
    services: Services, run_id: RunId, rules: Sequence[Rule], first_step: int, last_step: int
) -> Rows:
    """What the rules read, from as far back as fills their windows."""
    start = max(0, first_step - max(map(rows_before, rules), default=0))
    names = frozenset(name for rule in rules for name in series_needed(rule))
    async with services.database.read() as connection:
        known = await queries.list_metrics(connection, run_id)
    window = Window(first_step=start, last_step=last_step, points=last_step - start + 1)
    series = {
        metric: await services.reader.metric_series(run_id, metric, window)
        for metric in known
        if rule_name(metric) in names
    }
    return _side_by_side(series)


def _side_by_side(series: dict[str, Series]) -> Rows:
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *_steps(series)]))
    metrics = np.full((len(steps), len(series)), ABSENT_64)
    for column, one in enumerate(series.values()):
        if one.values is not None:
            metrics[np.searchsorted(steps, one.buckets.steps), column] = one.values[:, 0]
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=tuple(series),
        metrics=metrics,
        layer_names=(),
        stat_names=(),
        stats=np.empty((len(steps), 0, 0), np.float32),
    )


def _steps(series: dict[str, Series]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    return [one.buckets.steps for one in series.values()]


def _view(rule: Rule, name: str, rows: Rows, first_step: int, last_step: int) -> ThresholdView:
    if is_level(rule, name):
        found = threshold(rule, name, _ends(name, first_step, last_step))
    else:
        found = threshold(rule, name, rows)
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
    """Six digits: what a chart can show."""
    return [float(f"{level:.6g}") for level in found.levels[within].tolist()]


def _ends(name: str, first_step: int, last_step: int) -> Rows:
    steps = np.array([first_step, max(last_step, first_step)])
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=(name,),
        metrics=np.zeros((2, 1)),
        layer_names=(),
        stat_names=(),
        stats=np.empty((2, 0, 0), np.float32),
    )
