"""What the rules said of a trial, and whether that was right."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.programs import NUM_CLASSES
from benchmarks.faults.recording import Trial, read_rows

from runwatch.alerts import AlertState
from runwatch.rules import Evaluator, Rule, Transition
from runwatch.rules.background import known_from
from runwatch.vocabulary import Severity

HEARD = (Severity.WARNING, Severity.CRITICAL)
"""What somebody is told; `info` is only there to be read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One trial, judged."""

    trial: Trial
    fired: tuple[Transition, ...]
    """Alerts as they began to fire, in order; one each."""

    @property
    def heard(self) -> list[Transition]:
        return [alert for alert in self.fired if alert.severity in HEARD]

    @property
    def false_alarms(self) -> list[Transition]:
        """What was said of a healthy program, or before anything was wrong."""
        first = self.trial.fault_step
        return [alert for alert in self.heard if first is None or alert.step < first]

    @property
    def answers(self) -> list[Transition]:
        first = self.trial.fault_step
        return [] if first is None else [alert for alert in self.heard if alert.step >= first]

    @property
    def delay(self) -> int | None:
        """Steps from the first that is ill to the first word; None where none came."""
        first = self.trial.fault_step
        return self.answers[0].step - first if self.answers and first is not None else None

    @property
    def names_layer(self) -> bool | None:
        """Whether the first alert that names a layer names one at fault; None where none is."""
        case = self.trial.case
        if case is None or not case.layers:
            return None
        first = self.trial.fault_step or 0
        named = [alert for alert in self.fired if alert.step >= first and alert.first_layer]
        return bool(named) and str(named[0].first_layer).startswith(case.layers)


def judge(trial: Trial, folder: Path, rules: Sequence[Rule]) -> Verdict:
    """By the evaluator that the service uses."""
    num_classes = NUM_CLASSES.get(trial.program)
    known = known_from({} if num_classes is None else {"num_classes": num_classes})
    evaluator = Evaluator(rules, known)
    fired: dict[str, Transition] = {}
    for rows in read_rows(trial, folder):
        for told in evaluator.observe(rows):
            if told.state is AlertState.FIRING:
                fired.setdefault(told.episode, told)
    return Verdict(trial, tuple(sorted(fired.values(), key=lambda alert: alert.step)))


@dataclass(frozen=True, slots=True)
class Score:
    """Of many trials, as shares."""

    recall: float
    right_layer: float
    acute_delay: float
    """Median steps, of the acute faults that were seen."""
    warned: float
    """Of the healthy trials."""
    paged: float
    early: float
    """Of the ill trials: a word before anything was wrong."""


def score(verdicts: Sequence[Verdict]) -> Score:
    ill = [verdict for verdict in verdicts if verdict.trial.case is not None]
    healthy = [verdict for verdict in verdicts if verdict.trial.case is None]
    layers = [verdict.names_layer for verdict in ill if verdict.names_layer is not None]
    acute = [v.delay for v in ill if v.trial.case and v.trial.case.is_acute and v.delay is not None]
    return Score(
        recall=_share(bool(verdict.answers) for verdict in ill),
        right_layer=_share(layers),
        acute_delay=statistics.median(acute) if acute else float("nan"),
        warned=_share(bool(verdict.false_alarms) for verdict in healthy),
        paged=_share(
            any(alert.severity is Severity.CRITICAL for alert in verdict.false_alarms)
            for verdict in healthy
        ),
        early=_share(bool(verdict.false_alarms) for verdict in ill),
    )


def _share(truths: Iterable[bool]) -> float:
    found = list(truths)
    return sum(found) / len(found) if found else float("nan")
