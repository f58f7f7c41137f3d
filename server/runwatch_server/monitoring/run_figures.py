"""A bounded set of figures of each run for Prometheus: newest values, worst layers, open alerts.

However many runs, layers and metrics there are, only the MAX_RUNS runs heard of most recently are
shown, each with the same few series, enough for a dashboard. The REST API has all the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from runwatch.aliases import resolve
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.nonfinite import is_absent
from runwatch.series import STAT_SPECS
from runwatch.vocabulary import RunId, RunState
from runwatch_server.cut_names import cut_name

MAX_RUNS: Final = 200
WORST_LAYERS: Final = 5
"""Layers shown of each run: those with the largest gradient norm."""
_STAYS_WITHIN: Final = 2.0
"""A layer that is shown gives way only to one whose norm is this many times its own: norms that lie
close together change places at each step, and each change would begin a series."""
ENDED_FOR_S: Final = 3600.0
"""A run that ended is shown for this long after it was last heard of."""
_ELSEWHERE_AFTER_S: Final = 60.0
"""Figures that lag behind the database are shown for this long: another replica has newer ones."""
_MAX_LABEL: Final = 128
"""Most characters of a name that people chose."""
_METRICS: Final = {
    "loss": ("loss", "The newest loss."),
    "val_loss": ("val_loss", "The newest validation loss."),
    "lr": ("lr", "The newest learning rate."),
    "grad_norm": ("grad_norm", "The newest gradient norm, before clipping."),
    "loss_scale": ("loss_scale", "The newest loss scale of AMP."),
    "step_time": ("step_time_seconds", "Time of the newest step."),
    "tokens_per_s": ("tokens_per_second", "Tokens per second in the newest step."),
}
"""A run's metric: its series' name after `runwatch_run_`, and the help text."""
_STAT: Final = "grad_norm"
_LEFT_OUT: Final = STAT_SPECS[_STAT].counted_by
"""Counts the elements that the norm leaves out."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A shown run's facts from the database."""

    name: str
    project: str
    state: RunState
    last_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Facts from the database on all runs together, and on those that are shown."""

    num_by_state: Mapping[RunState, int]
    facts: Mapping[RunId, RunFacts]
    alerts: Mapping[tuple[RunId, str, str], int]
    """Open alerts by run, state and severity."""


_NO_FLEET: Final = Fleet(num_by_state={}, facts={}, alerts={})


@dataclass(slots=True)
class _Newest:
    """The figures of a run's newest frames."""

    heard_at: float = 0.0
    last_step: int = 0
    live_attempt: int = 0
    """The attempt that sent them live; 0: all of them were sent afterwards."""
    values: dict[str, float] = field(default_factory=dict[str, float])
    layers: tuple[str, ...] = ()
    norms: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    """Gradient norm of each layer in the newest step; NaN where elements were left out of it."""
    shown: list[int] = field(default_factory=list[int])
    """The layers shown at the last scrape."""


class RunFigures(Collector):
    """Notes incoming frames, and gives the newest values at each scrape."""

    def __init__(self) -> None:
        self._newest: dict[RunId, _Newest] = {}
        self._fleet = _NO_FLEET

    @property
    def run_ids(self) -> tuple[RunId, ...]:
        """The runs shown, in the order in which they were last heard of, oldest first."""
        return tuple(self._newest)

    def note(
        self, run_id: RunId, frame: Frame, layout: Layout | None, *, at: float, late: bool
    ) -> None:
        """Notes a frame; only those of rank 0 count, and none of an attempt before the live one."""
        newest = self._newest.get(run_id) or _Newest()
        is_of_the_past = late and newest.live_attempt not in (0, frame.attempt)
        if frame.rank != 0 or frame.num_steps == 0 or is_of_the_past:
            return
        if not late:
            newest.live_attempt = frame.attempt
        self._newest.pop(run_id, None)
        self._newest[run_id] = newest  # moved to the end: the first one is dropped first
        if len(self._newest) > MAX_RUNS:
            del self._newest[next(iter(self._newest))]
        newest.heard_at, newest.last_step = at, frame.last_step
        recorded = resolve(frame.metric_names)
        for name in _METRICS.keys() & recorded.keys():
            place = frame.metric_names.index(recorded[name])
            column = np.ascontiguousarray(frame.metrics[:, place])
            held = column[~is_absent(column)]
            if len(held):
                newest.values[name] = float(held[-1])
        if layout is not None and _STAT in layout.stats:
            if newest.layers != layout.layer_names:
                newest.layers, newest.shown = layout.layer_names, []
            newest.norms = _newest_norms(frame, layout)

    def forget(self, run_id: RunId) -> None:
        """Drops a run that was removed."""
        self._newest.pop(run_id, None)

    def refresh(self, fleet: Fleet, *, now: float) -> None:
        """Takes the database's facts; drops runs that it no longer has, runs long ended, and those
        that send to another replica now."""
        self._fleet = fleet
        for run_id, newest in tuple(self._newest.items()):
            facts = fleet.facts.get(run_id)
            if facts is None or _is_over(newest, facts, silent_s=now - newest.heard_at):
                del self._newest[run_id]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield self._runs()
        newest = self._newest
        steps = {run_id: float(one.last_step) for run_id, one in newest.items()}
        yield _of_runs("last_step", "The newest step.", steps)
        heard = {run_id: one.heard_at for run_id, one in newest.items()}
        text = "Unix time at which the run's last frame arrived."
        yield _of_runs("last_frame_timestamp_seconds", text, heard)
        for metric, (name, text) in _METRICS.items():
            values = {
                run_id: one.values[metric] for run_id, one in newest.items() if metric in one.values
            }
            yield _of_runs(name, text, values)
        yield self._nonfinite_layers()
        yield self._worst_layers()
        yield from self._of_database()

    def _runs(self) -> GaugeMetricFamily:
        family = _family("runwatch_runs", "Runs in each state.", "state")
        for state in RunState:
            family.add_metric((state.value,), self._fleet.num_by_state.get(state, 0))
        return family

    def _nonfinite_layers(self) -> GaugeMetricFamily:
        family = _family(
            "runwatch_run_nonfinite_layers",
            "Layers whose newest gradient holds NaN or infinity.",
            "run_id",
        )
        for run_id, newest in self._newest.items():
            if len(newest.norms):
                bad = ~np.isfinite(newest.norms) & ~is_absent(newest.norms)
                family.add_metric((run_id,), int(bad.sum()))
        return family

    def _worst_layers(self) -> GaugeMetricFamily:
        family = _family(
            "runwatch_run_layer_grad_norm",
            f"The newest gradient norm of {WORST_LAYERS} layers where it is largest: one that is "
            "shown gives way to another only at twice its norm. NaN where the gradient holds NaN "
            "or infinity.",
            *("run_id", "layer"),
        )
        for run_id, newest in self._newest.items():
            newest.shown = worst_layers(newest.norms, newest.shown)
            for index in newest.shown:
                labels = (run_id, _label(newest.layers[index]))
                family.add_metric(labels, float(newest.norms[index]))
        return family

    def _of_database(self) -> Iterable[GaugeMetricFamily]:
        info = _family("runwatch_run_info", "Always 1; a run's names.", "run_id", "run", "project")
        states = _family("runwatch_run_state", "1 for the run's state.", "run_id", "state")
        alerts = _family(
            "runwatch_run_alerts",
            "Open alerts of the run, without those of rules on trial or explained by another.",
            "run_id",
            "state",
            "severity",
        )
        for run_id in self._newest.keys() & self._fleet.facts.keys():
            facts = self._fleet.facts[run_id]
            info.add_metric((run_id, _label(facts.name), _label(facts.project)), 1)
            states.add_metric((run_id, facts.state.value), 1)
        for labels, count in self._fleet.alerts.items():
            if labels[0] in self._newest:
                alerts.add_metric(labels, count)
        yield from (info, states, alerts)


def _is_over(newest: _Newest, facts: RunFacts, *, silent_s: float) -> bool:
    is_behind = facts.last_step is not None and facts.last_step > newest.last_step
    return (facts.state.is_ended and silent_s > ENDED_FOR_S) or (
        is_behind and silent_s > _ELSEWHERE_AFTER_S
    )


def _newest_norms(frame: Frame, layout: Layout) -> NDArray[np.float32]:
    norms = _newest(frame, layout, _STAT).copy()
    if _LEFT_OUT in layout.stats:
        counts = _newest(frame, layout, _LEFT_OUT)
        norms[(counts > 0) & np.isfinite(norms)] = np.nan
    return norms


def _newest(frame: Frame, layout: Layout, stat: str) -> NDArray[np.float32]:
    first = layout.stats.index(stat) * len(layout.layers)
    return frame.stats[-1, first : first + len(layout.layers)]


def worst_layers(norms: NDArray[np.float32], shown: Sequence[int] = ()) -> list[int]:
    """Indices of the layers to look at first: non-finite norms, then the largest; absent ones are
    left out, and those `shown` before stay while none is much worse."""
    held = np.flatnonzero(~is_absent(norms))
    weights = np.where(np.isin(held, shown), _STAYS_WITHIN, 1.0)
    badness = np.where(np.isfinite(norms[held]), norms[held] * weights, np.inf)
    order = np.argsort(-badness, kind="stable")[:WORST_LAYERS]
    return [int(index) for index in held[order]]


def _of_runs(name: str, text: str, values: Mapping[RunId, float]) -> GaugeMetricFamily:
    family = _family(f"runwatch_run_{name}", text, "run_id")
    for run_id, value in values.items():
        family.add_metric((run_id,), value)
    return family


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _label(text: str) -> str:
    return cut_name(text, _MAX_LABEL)
