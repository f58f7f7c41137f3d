"""What the service counts of itself, and a bounded little of each run, for Prometheus."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

import runwatch
from runwatch.frames import Frame
from runwatch.nonfinite import is_absent
from runwatch.vocabulary import RunId, RunState

_RUN_METRICS: Final = ("loss", "grad_norm", "lr", "loss_scale")
_MAX_RUNS: Final = 200
"""Runs shown at a time, the latest heard of: series stay bounded however many runs there were."""
_COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Health:
    """Counters of one service, in a registry of its own: two services share nothing."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._frames = self._counter("frames", "Frames committed.")
        self._duplicates = self._counter("duplicate_frames", "Frames that were held already.")
        self._values = self._counter("values", "Numbers in committed frames.")
        self._bytes = self._counter("frame_bytes", "Bytes of committed frames, as received.")
        self._problems = Counter(
            "runwatch_problems",
            "Requests refused, by the code of the problem.",
            ("code",),
            registry=self.registry,
        )
        self._commits = Histogram(
            "runwatch_commit_seconds",
            "Time of a transaction of the writer.",
            buckets=_COMMIT_BUCKETS,
            registry=self.registry,
        )
        self._works = self._counter("writes", "Works committed; over commits: the group's size.")
        build = Gauge(
            "runwatch_build_info",
            "Versions in use.",
            ("version", "sqlite"),
            registry=self.registry,
        )
        build.labels(runwatch.__version__, sqlite3.sqlite_version).set(1)
        self._runs = _LastOfRuns()
        self.registry.register(self._runs)

    def watch_queue(self, num_waiting: Callable[[], int]) -> None:
        gauge = Gauge("runwatch_writes_waiting", "Works queued.", registry=self.registry)
        gauge.set_function(num_waiting)

    def observe_commit(self, *, num_works: int, seconds: float) -> None:
        self._commits.observe(seconds)
        self._works.inc(num_works)

    def observe_frame(self, run_id: RunId, frame: Frame, *, num_bytes: int) -> None:
        self._frames.inc()
        self._values.inc(frame.stats.size + frame.metrics.size)
        self._bytes.inc(num_bytes)
        self._runs.note(run_id, frame)

    def observe_duplicate(self) -> None:
        self._duplicates.inc()

    def observe_problem(self, code: str) -> None:
        self._problems.labels(code).inc()

    def observe_state(self, run_id: RunId, state: RunState) -> None:
        self._runs.states[run_id] = state

    def forget_run(self, run_id: RunId) -> None:
        self._runs.forget(run_id)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"runwatch_{name}", text, registry=self.registry)


class _LastOfRuns:
    """The newest value of a few metrics of each run that was heard of lately."""

    def __init__(self) -> None:
        self._values: dict[RunId, dict[str, float]] = {}
        self.states: dict[RunId, RunState] = {}

    def note(self, run_id: RunId, frame: Frame) -> None:
        if frame.rank != 0 or frame.num_steps == 0:
            return
        values = self._values.pop(run_id, {})
        self._values[run_id] = values  # last in order: the oldest goes first
        if len(self._values) > _MAX_RUNS:
            self.forget(next(iter(self._values)))
        values["last_step"] = frame.last_step
        for name in _RUN_METRICS:
            if name in frame.metric_names:
                column = np.ascontiguousarray(frame.metrics[:, frame.metric_names.index(name)])
                held = column[~is_absent(column)]
                if len(held):
                    values[name] = float(held[-1])

    def forget(self, run_id: RunId) -> None:
        self._values.pop(run_id, None)
        self.states.pop(run_id, None)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name in ("last_step", *_RUN_METRICS):
            family = GaugeMetricFamily(
                f"runwatch_run_{name}", f"The run's newest {name}.", labels=("run_id",)
            )
            for run_id, values in self._values.items():
                if name in values:
                    family.add_metric((run_id,), values[name])
            yield family
        states = GaugeMetricFamily(
            "runwatch_run_state", "1 for the state that the run is in.", labels=("run_id", "state")
        )
        for run_id in self._values:
            if run_id in self.states:
                states.add_metric((run_id, self.states[run_id]), 1)
        yield states
