"""Tests of rules, written as data by whoever writes the rules.

    tests:
    - name: a spike fires at once, in its layer
      layers: [blocks.0, blocks.1]
      series:
        loss: 2-0.001x303
        grad_norm: {blocks.0: 1x200 50x3 1x100, blocks.1: 1x303}
      expect:
      - {step: 200, alerts: [{rule: GradNormSpike, state: firing, layer: blocks.0}]}
      - {step: 302, alerts: []}

A series that is a text is the run's, one that is a mapping holds a text for each layer (see
`series_notation`). Steps count from 0, or from `first_step`, one a second. `alerts` are all that
are not inactive after the step; `fired` on a test lists all rules that ever fire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runwatch.alerts import AlertState
from runwatch.errors import Fault, RuleError
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules.evaluator import Evaluator
from runwatch.rules.observations import Rows
from runwatch.rules.reading import Fields
from runwatch.rules.rule import Rule
from runwatch.rules.series_notation import expand
from runwatch.rules.transitions import Transition

_MAX_TESTS: Final = 1000
_MAX_STEP: Final = 10**6


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    rule: str
    state: str
    layer: str
    """Among the failing layers; empty where the test does not say."""
    inhibited_by: str = ""
    """The rule that explains it; `nobody`, or empty where the test does not say."""


@dataclass(frozen=True, slots=True)
class Expectation:
    step: int
    alerts: tuple[ExpectedAlert, ...]


@dataclass(frozen=True, slots=True)
class RuleTest:
    name: str
    rows: Rows
    expectations: tuple[Expectation, ...]
    fired: tuple[str, ...] | None
    """The rules that ever fire; None where the test does not say."""


@dataclass(frozen=True, slots=True)
class RuleTestResult:
    name: str
    failures: tuple[str, ...]
    """Empty: it passed."""


def run_rule_tests(document: object, rules: Sequence[Rule]) -> tuple[RuleTestResult, ...]:
    """The result of each test of a parsed document. Raises RuleError with all its faults."""
    return tuple(_run(test, rules) for test in load_rule_tests(document))


def load_rule_tests(document: object) -> tuple[RuleTest, ...]:
    """The tests of a parsed document. Raises RuleError with all its faults."""
    faults: list[Fault] = []
    fields = Fields(document, "", faults)
    fields.take("rule_files")
    tests = [
        _load_test(Fields(test, f"tests[{index}]", faults))
        for index, test in enumerate(fields.items("tests", most=_MAX_TESTS))
    ]
    fields.finish()
    if faults:
        raise RuleError(faults)
    return tuple(tests)


def _run(test: RuleTest, rules: Sequence[Rule]) -> RuleTestResult:
    transitions = Evaluator(rules).observe(test.rows)
    failures = [
        failure
        for expectation in test.expectations
        for failure in _compare(expectation, _standing_after(transitions, expectation.step))
    ]
    fired = sorted({t.rule for t in transitions if t.state is AlertState.FIRING})
    if test.fired is not None and fired != sorted(test.fired):
        failures.append(f"fired: found {fired}, wanted {sorted(test.fired)}")
    return RuleTestResult(test.name, tuple(failures))


def _standing_after(transitions: Sequence[Transition], step: int) -> dict[str, Transition]:
    """The alerts that are not inactive after a step."""
    latest = {transition.rule: transition for transition in transitions if transition.step <= step}
    return {
        rule: transition
        for rule, transition in latest.items()
        if transition.state is AlertState.PENDING or transition.state.is_open
    }


def _compare(expectation: Expectation, standing: dict[str, Transition]) -> list[str]:
    wanted = {alert.rule: alert.state for alert in expectation.alerts}
    found = {rule: transition.state.value for rule, transition in standing.items()}
    place = f"step {expectation.step}"
    if found != wanted:
        return ["\n".join([f"{place}:", *_difference(found, wanted)])]
    return [
        f"{place}: {complaint}"
        for alert in expectation.alerts
        for complaint in _complaints(alert, standing[alert.rule])
    ]


def _complaints(wanted: ExpectedAlert, found: Transition) -> list[str]:
    complaints: list[str] = []
    if wanted.layer and wanted.layer not in found.layers:
        complaints.append(f"found {wanted.rule} in {list(found.layers)}, wanted {wanted.layer}")
    inhibited_by = found.inhibited_by or "nobody"
    if wanted.inhibited_by not in ("", inhibited_by):
        wants = f"wanted {wanted.inhibited_by}"
        complaints.append(f"found {wanted.rule} inhibited by {inhibited_by}, {wants}")
    return complaints


def _difference(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """A line for each rule on which the two are not one."""
    return [
        f"  {rule}: found {found.get(rule, 'nothing')}, wanted {wanted.get(rule, 'nothing')}"
        for rule in sorted(found.keys() | wanted.keys())
        if found.get(rule) != wanted.get(rule)
    ]


def _load_test(fields: Fields) -> RuleTest:
    name = fields.text("name", required=True)
    layers = _texts(fields, "layers")
    metrics, stats = _load_series(fields, layers)
    expectations = tuple(
        _load_expectation(expected) for expected in fields.each("expect", most=_MAX_TESTS)
    )
    fired = _texts(fields, "fired") if fields.holds("fired") else None
    first_step = fields.whole("first_step", lowest=0, highest=_MAX_STEP) or 0
    fields.finish()
    return RuleTest(name, _rows(metrics, stats, layers, first_step), expectations, fired)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    found = fields.items(name, most=_MAX_TESTS)
    for index, text in enumerate(found):
        if not isinstance(text, str):
            fields.note(f"{name}[{index}]", "wanted a text")
    return tuple(text for text in found if isinstance(text, str))


Metrics = dict[str, list[float]]
Stats = dict[str, dict[str, list[float]]]


def _load_series(fields: Fields, layers: tuple[str, ...]) -> tuple[Metrics, Stats]:
    metrics: Metrics = {}
    stats: Stats = {}
    series = fields.fields("series")
    if series is None:
        fields.note("series", "found nothing, wanted at least one series")
        return metrics, stats
    for name in series.names():
        if isinstance(series.take(name), dict):
            of_layers = series.fields(name)
            assert of_layers is not None
            stats[name] = {layer: _samples(of_layers, layer) for layer in layers}
            of_layers.finish()
        else:
            metrics[name] = _samples(series, name)
    return metrics, stats


def _samples(fields: Fields, name: str) -> list[float]:
    found = fields.take(name)
    if not isinstance(found, str):
        fields.note(name, "wanted a text in quotes: YAML takes 0x300 for a hexadecimal number")
        return []
    try:
        return expand(found)
    except ValueError as error:
        fields.note(name, str(error))
        return []


def _load_expectation(fields: Fields) -> Expectation:
    step = fields.whole("step", lowest=0, highest=_MAX_STEP)
    if step is None:
        fields.note("step", "wanted the number of a step")
    alerts: list[ExpectedAlert] = []
    for alert in fields.each("alerts", most=_MAX_TESTS):
        rule = alert.text("rule", required=True)
        state = alert.choice("state", AlertState.FIRING)
        layer, inhibited_by = alert.text("layer"), alert.text("inhibited_by")
        alerts.append(ExpectedAlert(rule, state.value, layer, inhibited_by))
        alert.finish()
    fields.finish()
    return Expectation(step or 0, tuple(alerts))


def _rows(metrics: Metrics, stats: Stats, layers: tuple[str, ...], first_step: int) -> Rows:
    """Series of unlike lengths are filled up with 'not recorded'."""
    every = [
        *metrics.values(),
        *(one for of_layers in stats.values() for one in of_layers.values()),
    ]
    num_rows = max((len(samples) for samples in every), default=0)
    metrics_NM = np.full((num_rows, len(metrics)), ABSENT_64)
    for column, samples in enumerate(metrics.values()):
        metrics_NM[: len(samples), column] = samples
    stats_NSL = np.full((num_rows, len(stats), len(layers)), ABSENT_32, np.float32)
    for place, of_layers in enumerate(stats.values()):
        for column, layer in enumerate(layers):
            samples = of_layers[layer]
            stats_NSL[: len(samples), place, column] = samples
    return Rows(
        steps=np.arange(first_step, first_step + num_rows, dtype=np.int64),
        times=np.arange(num_rows, dtype=np.float64),
        metric_names=tuple(metrics),
        metrics=metrics_NM,
        layer_names=layers if stats else (),
        stat_names=tuple(stats),
        stats=stats_NSL,
    )
