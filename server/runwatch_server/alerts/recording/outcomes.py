"""Whether an alert that ends has recovered, by what is stored of its run from before its onset.

Asked once, when the condition is over for good: before the transaction that records it, because
what is read does not change by it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from runwatch.alerts import Reason
from runwatch.rules import IN_CODE, Rule, Transition
from runwatch.rules.evidence import LOOK_BACK_STEPS, Recorded
from runwatch.rules.observations import columns_by_name
from runwatch.rules.outcomes import ROWS_AFTER, level_judged, outcome_of
from runwatch.vocabulary import RunId, Scope
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError
from runwatch_server.objects import ObjectsAwayError
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.reading import Reader, Window

_Reading = Callable[[int, int], Awaitable[Recorded]]
"""Reads a series from one step to another."""

log = logging.getLogger(__name__)

_SPARSE_STEPS: Final = 64 * LOOK_BACK_STEPS
"""How far to look back where few of the newest steps have a value: an evaluation's, or a log's."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Looks at stored runs."""

    database: Database
    layouts: Layouts
    reader: Reader

    async def find(
        self,
        run_id: RunId,
        rules: Sequence[Rule],
        transitions: Sequence[Transition],
        *,
        rank: int,
        segment: int,
    ) -> list[Transition]:
        """The transitions of rows of a segment, those among them corrected that say `recovered`
        without being so."""
        if not any(one.reason is Reason.RECOVERED for one in transitions):
            return list(transitions)
        known = {rule.name: rule for rule in (*IN_CODE, *rules)}
        return [
            await self._judged(run_id, known[one.rule], one, rank, segment)
            if one.reason is Reason.RECOVERED
            else one
            for one in transitions
        ]

    async def _judged(
        self, run_id: RunId, rule: Rule, ended: Transition, rank: int, segment: int
    ) -> Transition:
        try:
            outcome = await self._outcome(run_id, rule, ended, rank, segment)
        except (NotFoundError, ObjectsAwayError) as error:  # the time before cannot be known
            log.info("run %s: how %s ended cannot be judged: %s", run_id, rule.name, error)
            return ended
        return replace(ended, reason=Reason.SETTLED_WORSE, outcome=outcome) if outcome else ended

    async def _outcome(
        self, run_id: RunId, rule: Rule, ended: Transition, rank: int, segment: int
    ) -> str:
        level = level_judged(rule)
        if level is None:
            return ""
        layer = ended.worst_layer if rule.scope is Scope.LAYER and rule.when is not None else None
        read = await self._reading(run_id, level.series, layer, rank)
        keep, onset = rule.keep_firing_for, ended.onset_step
        num_last = keep.rows or (ROWS_AFTER if keep.steps else 1)
        past = await _newest(read, onset, LOOK_BACK_STEPS)
        if segment != ended.segment:  # a rollback had the onset's step trained again
            past = past.until(onset)
        last = await _newest(read, ended.step, num_last)
        first = ended.step - keep.steps + 1 if keep.steps else onset
        return outcome_of(level, past, onset, last.since(first).values_N[-num_last:])

    async def _reading(self, run_id: RunId, series: str, layer: str | None, rank: int) -> _Reading:
        """Reads the series as it is stored: of the layer, or of the run if layers have none of the
        name. Raises NotFoundError."""
        async with self.database.read() as connection:
            metrics = tuple(await queries.list_metrics(connection, run_id))
        column = columns_by_name(metrics).get(series)
        metric = series if column is None else metrics[column]
        known = [] if layer is None else await self.layouts.all(run_id)
        is_of_layer = any(series in layout.stats for layout in known)

        async def read(first: int, last: int) -> Recorded:
            # Of the effective history: what a rollback undid is not what the run came back to.
            first_step = max(first, 0)
            points = 2 * (last - first_step + 1)
            window = Window(rank=rank, first_step=first_step, last_step=last, points=points)
            if layer is not None and is_of_layer:
                found = await self.reader.layer_series(run_id, layer, series, window)
            else:
                found = await self.reader.metric_series(run_id, metric, window)
            values = found.buckets.mean if found.values is None else found.values
            return Recorded.of(found.buckets.steps, np.asarray(values[:, 0], np.float64))

        return read


async def _newest(read: _Reading, last_step: int, num_rows: int) -> Recorded:
    """Rows up to a step, from as far back as it takes to find so many."""
    rows = await read(last_step - LOOK_BACK_STEPS, last_step)
    return rows if rows.size >= num_rows else await read(last_step - _SPARSE_STEPS, last_step)
