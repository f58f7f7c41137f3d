"""What the built-in rules catch in a folder of labelled logs, and what each detector adds.

    python -m benchmarks.detection ../shared/logs [--injected]

The folder holds CSV logs (a column `step`, any of `loss`, `grad_norm`, ...), an `index.csv` that
labels them, and a `score.py` that says what counts as caught. `--injected` lays faults over its
healthy logs instead, each at six tenths of a log.
"""

import argparse
import csv
import importlib.util
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, cast

import numpy as np
from benchmarks.harness import markdown_table
from benchmarks.rules import built_in_rules

from runwatch.alerts import AlertState
from runwatch.nonfinite import ABSENT_64
from runwatch.rules import Evaluator, Rows, Rule

LogRow = dict[str, float | None]
"""A line of a log; what it left empty is None."""

ORDER: Final = (
    "NonFinite", "LossScaleCollapse", "LossScaleFalling", "GradientSpike", "GradientExplosion",
    "LossSpike", "LossJump", "LossSpikeUnrecovered", "LossFrozen", "LossFrozenForGood",
    "LossRising", "LossDivergence", "LossAtChance", "NoLearning", "EvaluationFrozen",
)  # fmt: skip
"""In which detectors are added, from those that need the least history."""
SHORTEST_LOG: Final = 20
"""Rows; in a shorter one nothing can be laid over a past."""
WITH_WARNINGS, PAGES = ("critical", "warning"), ("critical",)


class Fired(TypedDict):
    """One alert, as score.py reads it."""

    step: int
    severity: str
    rule: str


class Log(TypedDict):
    """A line of the index; other columns are score.py's."""

    file: str
    repo: str
    label: str


class Logs:
    """A folder of labelled logs, and its own way to score alerts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with (folder / "index.csv").open() as index:
            self.index = cast(list[Log], list(csv.DictReader(index)))
        spec = importlib.util.spec_from_file_location("score", folder / "score.py")
        assert spec is not None
        assert spec.loader is not None
        self._scorer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._scorer)

    def rows(self, log: Log) -> list[LogRow]:
        return cast(list[LogRow], self._scorer.rows(self._folder / log["file"]))

    def score(
        self, fired: Mapping[str, Sequence[Fired]], severities: Sequence[str]
    ) -> dict[str, float]:
        def of(file: str, _: object) -> Sequence[Fired]:
            return fired.get(file, ())

        return cast(dict[str, float], self._scorer.score(self.index, self._folder, of, severities))


def pieces(log: Sequence[LogRow]) -> Iterator[Rows]:
    """The log as rows; where its step falls back, a new segment begins."""
    names = tuple(name for name in log[0] if name not in ("step", "time"))
    steps = [0]
    for row in log:
        step = row["step"]
        steps.append(steps[-1] if step is None or step != step else int(step))
    steps_T = np.array(steps[1:], np.int64)
    values = [[row[name] for name in names] for row in log]
    metrics = np.array([[ABSENT_64 if v is None else v for v in row] for row in values], np.float64)
    falls = np.flatnonzero(np.diff(steps_T) < 0) + 1
    bounds = [0, *falls.tolist(), len(log)]
    for segment, (start, stop) in enumerate(pairwise(bounds)):
        yield Rows(
            steps=steps_T[start:stop],
            times=np.arange(start, stop, dtype=np.float64),
            metric_names=names,
            metrics=metrics[start:stop],
            layer_names=(),
            stat_names=(),
            stats=np.empty((stop - start, 0, 0), np.float32),
            segment=segment,
        )


def judge(rules: Sequence[Rule], log: Sequence[LogRow]) -> list[Fired]:
    """The first firing of each alert that warns or pages."""
    evaluator = Evaluator(rules)
    fired: dict[str, Fired] = {}
    for rows in pieces(log):
        for told in evaluator.observe(rows):
            if told.state is AlertState.FIRING and told.severity.value in WITH_WARNINGS:
                alert = Fired(step=told.step, severity=told.severity.value, rule=told.rule)
                fired.setdefault(told.episode, alert)
    return list(fired.values())


def added(logs: Logs, rules: Sequence[Rule]) -> str:
    """The score as one detector after the other is added."""
    of_all = {log["file"]: judge(rules, logs.rows(log)) for log in logs.index}
    table: list[Sequence[object]] = []
    for count in range(1, len(ORDER) + 1):
        fired = {
            file: [alert for alert in alerts if alert["rule"] in ORDER[:count]]
            for file, alerts in of_all.items()
        }
        table.append((f"+ {ORDER[count - 1]}", *_figures(logs, fired)))
    table.append(("all rules", *_figures(logs, of_all)))
    pages = logs.score(of_all, PAGES)
    table.append(("critical rules alone", f"{pages['recall']:.3f}", "", "", ""))
    return markdown_table(("detector", "recall", "warned", "paged", "median delay, rows"), table)


def _figures(logs: Logs, fired: Mapping[str, Sequence[Fired]]) -> tuple[str, ...]:
    score, pages = logs.score(fired, WITH_WARNINGS), logs.score(fired, PAGES)
    shares = (score["recall"], score["healthy_runs_alarmed"], pages["healthy_runs_alarmed"])
    return (*(f"{share:.3f}" for share in shares), str(score["median_delay_rows"]))


class Past(NamedTuple):
    """The loss before a fault."""

    first: float
    recent: float
    """Median of its last eight."""
    last: float


Fault = Callable[[float, Past, int, int], float]
"""The loss, from what it was, its past, the rows since the fault began, and those in all."""

FAULTS: Final[Mapping[str, Fault]] = {
    "the loss is NaN": lambda loss, past, since, total: float("nan"),
    "the loss is frozen": lambda loss, past, since, total: past.last,
    "the loss is zero": lambda loss, past, since, total: 0.0,
    "a spike to twice, 3 rows": lambda loss, past, since, total: (
        loss + past.recent if since < 3 else loss
    ),
    "stays up at 1.5 times": lambda loss, past, since, total: loss * 1.5,
    "creeps up to 1.5 times": lambda loss, past, since, total: (
        loss * (1 + 0.5 * min(1.0, since / (0.5 * total)))
    ),
    "back to where it began": lambda loss, past, since, total: loss - past.recent + past.first,
}


def injected(logs: Logs, rules: Sequence[Rule]) -> str:
    """How many faults are caught, and how soon; each repository weighs the same."""
    healthy = [(log["repo"], logs.rows(log)) for log in logs.index if log["label"] == "healthy"]
    table: list[Sequence[object]] = []
    for name, fault in FAULTS.items():
        caught: dict[str, list[bool]] = defaultdict(list)
        delays: list[int] = []
        for repo, log in healthy:
            onset = int(0.6 * len(log))
            spoiled = with_fault(log, fault, onset)
            if spoiled is None:
                continue
            delay = _delay(rules, spoiled, onset)
            caught[repo].append(delay is not None)
            delays += [] if delay is None else [delay]
        recall = statistics.fmean(statistics.fmean(found) for found in caught.values())
        table.append((name, f"{recall:.2f}", statistics.median(delays) if delays else "-"))
    return markdown_table(("fault", "recall", "median delay, rows"), table)


def with_fault(log: Sequence[LogRow], fault: Fault, onset: int) -> list[LogRow] | None:
    """The log with a fault from a row on; None for one too short, or without a loss before it."""
    losses = {place: loss for place, row in enumerate(log) if (loss := row.get("loss")) is not None}
    before = [loss for place, loss in losses.items() if place < onset]
    if len(log) < SHORTEST_LOG or not before:
        return None
    past = Past(statistics.median(before[:8]), statistics.median(before[-8:]), before[-1])
    spoiled = [dict(row) for row in log]
    for place, loss in losses.items():
        if place >= onset:
            spoiled[place]["loss"] = fault(loss, past, place - onset, len(log) - onset)
    return spoiled


def _delay(rules: Sequence[Rule], log: Sequence[LogRow], onset: int) -> int | None:
    """Rows from the fault to the first alert after it; None where there is none."""
    places: dict[int, int] = {}
    for place, row in enumerate(log):
        if (step := row["step"]) is not None and step == step:
            places.setdefault(int(step), place)
    after = [places.get(alert["step"], 0) for alert in judge(rules, log)]
    return min((place - onset for place in after if place >= onset), default=None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path)
    parser.add_argument("--injected", action="store_true")
    options = parser.parse_args()
    if not (options.logs / "index.csv").is_file():
        print(f"{options.logs}: found no index.csv, wanted a folder of labelled logs")
        return 2
    logs, rules = Logs(options.logs), built_in_rules()
    print(injected(logs, rules) if options.injected else added(logs, rules))
    return 0


if __name__ == "__main__":
    sys.exit(main())
