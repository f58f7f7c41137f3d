"""Finds signs in a stored run around the onset of an alert."""

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runwatch.aliases import resolve
from runwatch.number_texts import count, number
from runwatch.rules.diagnosis import Sign
from runwatch.rules.evidence import (
    LOOK_AHEAD_STEPS,
    LOOK_BACK_STEPS,
    Departure,
    Recorded,
    began_at,
    departure,
    grew_before,
    in_order,
    layer_signs,
    lr_signs,
    order_signs,
    scaler_signs,
)
from runwatch.rules.nonfinite_rule import IN_CODE_NAMES
from runwatch_server.alerts import event_queries
from runwatch_server.alerts.diagnosis.broken_layers import GRADIENT, BrokenLayers, LayerReader
from runwatch_server.alerts.diagnosis.run_signs import (
    ChangedBefore,
    bundles_of,
    changed_before,
    course_signs,
    run_signs,
    stall_signs,
)
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError
from runwatch_server.telemetry import queries as telemetry_queries
from runwatch_server.telemetry import segment_queries
from runwatch_server.telemetry.host_queries import find_hosts
from runwatch_server.telemetry.reading import Reader, Window

log = logging.getLogger(__name__)

_IN_ORDER: Final = ("loss", "val_loss", "grad_norm", "nonfinite", "step_time", "gpu_mem")
"""Metrics whose order of failing interests a reader."""
_OTHER_RATES: Final = ("lr.1", "lr.2")
_CHANGED: Final = ("lr", *_OTHER_RATES, "loss_scale", "skipped", "clip_coef")
_MOST_LAYERS: Final = 5
BEFORE_STEPS: Final = 200
"""A change at most this many steps before an alert's onset may have caused it."""
TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Deviation:
    """A series that left its usual range."""

    series: str
    layer: str | None
    departure: Departure
    told: str = ""
    """In words, where those of a departure would not do."""

    @property
    def words(self) -> str:
        if self.told:
            return self.told
        name = self.series if self.layer is None else f"{self.series} of {self.layer}"
        before, value = number(self.departure.before, 3), number(self.departure.value, 3)
        return f"{name} went from {before} to {value} at step {count(self.departure.step)}"


@dataclass(frozen=True, slots=True)
class Findings:
    signs: Mapping[Sign, str]
    """Each with the words that describe what was found."""
    order: Sequence[Deviation]
    """Ordered by when each series left its usual range."""
    changed: Sequence[ChangedBefore]
    bundles: Sequence[str] = ()
    """Paths of diagnostic bundles, on the trainer's machine."""
    host: str | None = None
    """The name of the host on which the alert's rank trains."""


NOTHING: Final = Findings({}, (), ())


@dataclass(frozen=True, slots=True)
class SignFinder:
    """Examines a stored run. It leaves out what it cannot find: the alert itself matters more."""

    database: Database
    reader: Reader

    async def find(self, alert: AlertRecord, *, num_similar: int) -> Findings:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._find(alert, num_similar)
        except TimeoutError:  # the machine is busy, and nothing is wrong
            log.warning("alert %s: what led to it was not found within %g s", alert.id, TIMEOUT_S)
            return NOTHING
        except NotFoundError:  # told of at the moment in which somebody removed the run
            log.info("alert %s: nothing is left of run %s to look at", alert.id, alert.run_id)
            return NOTHING
        except Exception:  # the alert is sent without its findings
            log.exception("alert %s: what led to it could not be looked at", alert.id)
            return NOTHING

    async def _find(self, alert: AlertRecord, num_similar: int) -> Findings:
        onset = alert.onset_step
        series = await self._metrics(alert)
        of_lr = lr_signs(series["lr"], onset, {name: series[name] for name in _OTHER_RATES})
        began = onset if Sign.LR_JUMPED in of_lr else began_at(series["loss"], onset)
        far = {
            name: found
            for name in _IN_ORDER
            if (found := departure(series[name], began)) is not None
        }
        layers, num_layers = await self._layers(alert)
        broken = await self._broken_layers(alert, series)
        async with self.database.read() as connection:
            events = await event_queries.list_run_events(
                connection,
                alert.run_id,
                attempt=alert.attempt,
                first_step=onset - BEFORE_STEPS,
                last_step=onset,
                limit=20,
            )
            segments = await segment_queries.list_segments(connection, alert.run_id, alert.rank)
            hosts = await find_hosts(connection, alert.run_id, alert.attempt)
        starts = {(one.attempt, one.segment): one.first_step for one in segments}
        of_scaler = scaler_signs(
            series["loss_scale"], series["skipped"], series["clip_coef"], onset
        )
        of_run = run_signs(alert, starts, events, num_similar)
        signs = {
            **of_lr,
            **of_scaler,
            **of_run,
            **stall_signs(alert.facts.stalled),
            **order_signs(
                far.get("loss"),
                far.get("grad_norm"),
                grew_before(series["grad_norm"], began),
                lr_jumped=Sign.LR_JUMPED in of_lr,
            ),
            **layer_signs(alert.facts.first_layer, alert.facts.widest.num_layers, num_layers),
            **await self._broken_parameter(alert),
            **course_signs(series, far),
        }
        if "step_time" in far and far["step_time"].value > far["step_time"].before:
            signs[Sign.STEP_SLOWER] = Deviation("step_time", None, far["step_time"]).words
        return Findings(
            signs,
            _order(far, layers, broken),
            changed_before(events, of_lr, of_scaler, of_run),
            bundles_of(events),
            hosts.get(alert.rank),
        )

    async def _metrics(self, alert: AlertRecord) -> dict[str, Recorded]:
        async with self.database.read() as connection:
            metrics = await telemetry_queries.list_metrics(connection, alert.run_id)
        known = {name: name for name in metrics} | resolve(metrics)
        found: dict[str, Recorded] = {}
        for name in (*_IN_ORDER, *_CHANGED):
            found[name] = Recorded(np.empty(0, np.int64), np.empty(0))
            if name in known:
                series = await self.reader.metric_series(alert.run_id, known[name], _window(alert))
                if series.values is not None:
                    found[name] = Recorded.of(series.buckets.steps, series.values[:, 0])
        return found

    async def _broken_parameter(self, alert: AlertRecord) -> dict[Sign, str]:
        """Whether the first failing layer's parameter was already NaN or infinite. Its norm is
        measured before the step, so a step with a broken gradient does not show in it."""
        layer = alert.facts.first_layer
        if layer is None:
            return {}
        try:
            series = await self.reader.layer_series(
                alert.run_id, layer, "param_norm", _window(alert)
            )
        except NotFoundError:
            return {}
        if series.values is None:
            return {}
        norms = Recorded.of(series.buckets.steps, series.values[:, 0]).until(alert.onset_step + 1)
        if np.isfinite(norms.values_N).all():
            return {}
        return {Sign.PARAMETER_BROKEN: f"the parameter {layer} was broken already"}

    async def _layers(self, alert: AlertRecord) -> tuple[dict[str, Departure], int]:
        """The layers whose gradient left its usual range first, and the number of layers. What is
        left of a gradient that is not finite is no departure: all NaN, it has a norm of 0."""
        if alert.facts.first_layer is None:
            return {}, 0
        norms = await self._of_layers(alert).read(GRADIENT)
        if norms is None:
            return {}, 0
        found = {
            name: gone
            for column, name in enumerate(norms.names)
            if (
                gone := departure(
                    Recorded.of(norms.steps_N, norms.values_NL[:, column]), alert.onset_step
                )
            )
        }
        # Gradients flow from the loss to the first layer: within one step the last layer failed
        # first.
        first = sorted(found.items(), key=lambda one: one[1].step)[:_MOST_LAYERS]
        return dict(first), len(norms.names)

    async def _broken_layers(
        self, alert: AlertRecord, series: Mapping[str, Recorded]
    ) -> list[BrokenLayers]:
        """Looked for only where the run's own numbers, or the rule, say that something broke."""
        is_broken = alert.rule in IN_CODE_NAMES or bool(
            (~(series["nonfinite"].values_N <= 0.0)).any()
            or (~np.isfinite(series["loss"].values_N)).any()
        )
        if not is_broken:
            return []
        skipped = series["skipped"]
        steps: list[int] = skipped.steps_N[skipped.values_N > 0.0].tolist()
        return await self._of_layers(alert).broken(alert.onset_step, alert.facts.first_layer, steps)

    def _of_layers(self, alert: AlertRecord) -> LayerReader:
        return LayerReader(self.reader, alert.run_id, _window(alert))


def _is_sum_of_broken(name: str, gone: Departure) -> bool:
    """Whether a metric only sums up what is told of the layers."""
    return name == "nonfinite" or (name == GRADIENT and not math.isfinite(gone.value))


def _window(alert: AlertRecord) -> Window:
    first, last = alert.onset_step - LOOK_BACK_STEPS, alert.onset_step + LOOK_AHEAD_STEPS
    return Window(
        rank=alert.rank,
        first_step=max(first, 0),
        last_step=last,
        points=2 * (last - first),
        attempt=alert.attempt,
        segment=alert.segment,
    )


def _order(
    far: Mapping[str, Departure],
    layers: Mapping[str, Departure],
    broken: Sequence[BrokenLayers],
) -> list[Deviation]:
    """Within a step parameters and activations break before the loss, and gradients after it."""
    is_gradient_broken = any(one.series == GRADIENT for one in broken)
    told = [
        Deviation(one.series, one.layer, Departure(one.step, one.value, math.nan), one.words)
        for one in broken
    ]
    found = [one for one in told if one.series != GRADIENT]
    found += [
        Deviation(name, None, gone)
        for name, gone in in_order(far)
        if not (is_gradient_broken and _is_sum_of_broken(name, gone))
    ]
    found += [one for one in told if one.series == GRADIENT]
    found += [Deviation(GRADIENT, name, gone) for name, gone in layers.items()]
    return sorted(found, key=lambda one: one.departure.step)
