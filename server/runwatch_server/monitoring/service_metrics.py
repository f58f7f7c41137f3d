"""The service's own counters for Prometheus, with a bounded set of figures for each run."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

import runwatch
from runwatch_server.disk import DiskGuard
from runwatch_server.monitoring.disk_figures import DiskCollector
from runwatch_server.monitoring.run_figures import RunFigures
from runwatch_server.telemetry.admission import Received
from runwatch_server.telemetry.gaps import GapReason
from runwatch_server.telemetry.quota import ProjectQuota

_WATCHED_PROBLEMS: Final = (
    *("unknown_key", "revoked_key", "expired_key", "malformed_key"),
    *("writer_queue_full", "rate_limited"),
)
"""Shown from the start with 0: Prometheus sees no increase when a series begins at 1."""
_COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.3, 1.0, 5.0)


class ServiceMetrics:
    """The counters of one service, in a registry of its own: two services share nothing."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._frames = self._counter("frames", "Frames committed.")
        self._duplicates = self._counter("duplicate_frames", "Frames that were stored already.")
        self._refused_metrics = self._counter(
            "refused_metrics", "Metrics left out of frames because their run has too many names."
        )
        self._values = self._counter("values", "Numbers in committed frames.")
        self._bytes = self._counter("frame_bytes", "Bytes of committed frames, as received.")
        self._problems = Counter(
            "runwatch_problems",
            "Requests refused, by the code of the problem.",
            ("code",),
            registry=self.registry,
        )
        for code in _WATCHED_PROBLEMS:
            self._problems.labels(code)
        self._commits = Histogram(
            "runwatch_commit_seconds",
            "Duration of the writer's transactions.",
            buckets=_COMMIT_BUCKETS,
            registry=self.registry,
        )
        self._works = self._counter(
            "writes", "Writes committed; divided by commits, the size of a group."
        )
        build = Gauge(
            "runwatch_build_info",
            "Versions in use.",
            ("version", "sqlite"),
            registry=self.registry,
        )
        build.labels(runwatch.__version__, sqlite3.sqlite_version).set(1)
        self._requests = Histogram(
            "runwatch_request_seconds",
            "Time until an answer began, by route; long polls and streams wait by design.",
            ("route", "status"),
            buckets=_REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._last_frame = Gauge(
            "runwatch_last_frame_timestamp_seconds",
            "Unix time of the last frame committed; 0 before the first.",
            registry=self.registry,
        )
        self._gaps = Counter(
            "runwatch_unreadable_gaps",
            "Stretches of stored steps that could not be read, by reason.",
            ("reason",),
            registry=self.registry,
        )
        for reason in GapReason:
            self._gaps.labels(reason.value)
        self._packs = self._counter("packs", "Objects of packed frames written.")
        self._pack_bytes = self._counter("pack_bytes", "Bytes of packed objects written.")
        self._packed = self._counter("packed_frames", "Frames packed into objects.")
        self._swept = self._counter(
            "swept_objects", "Objects removed because no pack refers to them."
        )
        self._object_failures = self._counter(
            "object_failures", "Packing rounds given up because the object store did not answer."
        )
        self._loop_failures = Counter(
            "runwatch_background_failures",
            "Failures of background loops, which are then started again, by name.",
            ("loop",),
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self.runs = RunFigures()
        self.registry.register(self.runs)

    def watch_queue(self, num_waiting: Callable[[], int]) -> None:
        gauge = Gauge("runwatch_writes_waiting", "Writes queued.", registry=self.registry)
        gauge.set_function(num_waiting)

    def watch_disk_guard(self, disk: DiskGuard) -> None:
        gauge = Gauge(
            "runwatch_disk_full",
            "1 while frames are refused for lack of disk space.",
            registry=self.registry,
        )
        gauge.set_function(lambda: disk.is_full)

    def watch_quota(self, quota: ProjectQuota) -> None:
        gauge = Gauge(
            "runwatch_projects_full",
            "Projects whose frames are refused because they have stored their quota.",
            registry=self.registry,
        )
        gauge.set_function(lambda: quota.num_full)

    def observe_commit(self, *, num_works: int, seconds: float) -> None:
        self._commits.observe(seconds)
        self._works.inc(num_works)

    def watch_loop(self, name: str) -> None:
        self._loop_failures.labels(name)

    def observe_loop_failure(self, name: str) -> None:
        self._loop_failures.labels(name).inc()

    def watch_disk(self, data_dir: Path) -> None:
        self.registry.register(DiskCollector(data_dir))

    def observe_request(self, route: str, status: int, *, seconds: float) -> None:
        """`route` is a route's pattern, never a path: there is no end of paths."""
        self._requests.labels(route, f"{status // 100}xx").observe(seconds)

    def observe_frame(self, received: Received, *, at: float) -> None:
        frame = received.frame
        self._frames.inc()
        self._values.inc(frame.stats.size + frame.metrics.size)
        self._bytes.inc(len(received.body))
        self._last_frame.set(at)
        self.runs.note(received.run_id, frame, received.layout, at=at, late=received.late)

    def observe_duplicate(self) -> None:
        self._duplicates.inc()

    def observe_refused_metrics(self, number: int) -> None:
        self._refused_metrics.inc(number)

    def observe_problem(self, code: str) -> None:
        self._problems.labels(code).inc()

    def observe_gap(self, reason: GapReason) -> None:
        self._gaps.labels(reason.value).inc()

    def observe_packed(self, *, num_bytes: int, num_frames: int) -> None:
        self._packs.inc()
        self._pack_bytes.inc(num_bytes)
        self._packed.inc(num_frames)

    def observe_swept(self, num_objects: int) -> None:
        self._swept.inc(num_objects)

    def observe_object_failure(self) -> None:
        self._object_failures.inc()

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"runwatch_{name}", text, registry=self.registry)
