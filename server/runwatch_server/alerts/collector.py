"""Prometheus metrics about judging and alerts. The number of series is bounded: never one per
layer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from runwatch.alerts import AlertState
from runwatch_server.alerts.assembly import Alerting
from runwatch_server.rules.own_names import PROTECTED_NAMES
from runwatch_server.rules.pack import load_builtin

MAX_RULES: Final = 200
"""Most rules with a label of their own, because users may write any number of rules with any
name."""


class AlertingCollector(Collector):
    """Reads the state of the evaluators and of the announcer at each scrape."""

    def __init__(self, alerting: Alerting) -> None:
        self._alerting = alerting
        names = sorted(PROTECTED_NAMES)
        names += [filed.rule.name for filed in load_builtin()]
        self._at_first = {(name, AlertState.FIRING): 0 for name in names}
        """Exported as 0 from the start: Prometheus sees no increase when a series begins at 1."""

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        health = self._alerting.evaluators.health
        yield _gauge("evaluators_running", "1 while frames are judged.", health.is_running)
        yield _gauge(
            "evaluator_busy_seconds",
            "Age of the evaluation that is running now; keeps growing if it does not end.",
            health.busy_s,
        )
        yield _gauge("evaluators_behind", "Runs with frames yet to be judged.", health.num_behind)
        yield _gauge(
            "evaluator_frames_waiting", "Frames stored but not yet judged.", health.num_waiting
        )
        yield _gauge(
            "evaluator_state_bytes",
            "Memory that evaluators take for what they remember of runs.",
            health.state_bytes,
        )
        failing = self._alerting.ticker.failing_runs | set(health.failing_runs)
        yield _gauge("evaluators_failing", "Runs that cannot be judged.", len(failing))
        yield _counter("evaluator_failures", "Batches that failed.", health.num_failures)
        yield _counter(
            "frames_to_evaluators", "Frames handed over to be judged.", health.num_frames
        )
        yield _counter(
            "missing_frames",
            "Frames skipped: they are lost, or had not come half a minute after later ones.",
            health.num_missing,
        )
        yield _gauge(
            "absence_tick_age_seconds",
            "Seconds since silence was last judged; keeps growing if that loop is dead.",
            self._alerting.ticker.age_s,
        )
        transitions = CounterMetricFamily(
            "runwatch_alert_transitions", "State changes of alerts.", labels=("rule", "state")
        )
        for (rule, state), count in bounded(
            self._at_first | self._alerting.announcer.transitions
        ).items():
            transitions.add_metric((rule, state), count)
        yield transitions
        alerts = GaugeMetricFamily("runwatch_alerts", "Open alerts.", labels=("state", "severity"))
        for (state, severity), count in self._alerting.ticker.open_alerts.items():
            alerts.add_metric((state, severity), count)
        yield alerts


def bounded(counts: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], int]:
    """Counts by rule and state for at most MAX_RULES rules; those of the rest are summed as
    `other`."""
    named = set(islice(dict.fromkeys(rule for rule, _ in counts), MAX_RULES))
    summed: Counter[tuple[str, str]] = Counter()
    for (rule, state), count in counts.items():
        summed[rule if rule in named else "other", state] += count
    return summed


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runwatch_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"runwatch_{name}", text, value=float(value))
