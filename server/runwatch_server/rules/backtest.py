"""Rules over what is stored: the evaluator that judges live, over frames or tables of old runs.

The reply has one form for every source (docs/design.md, section 4.6).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from runwatch.alerts import AlertState
from runwatch.nonfinite import JsonNumber, to_json
from runwatch.rules import Evaluator, Rows, Rule, Transition


class BacktestAlert(msgspec.Struct, frozen=True):
    alert: str
    severity: str
    labels: dict[str, str]
    pending_step: int
    firing_step: int
    resolved_step: int | None
    value: JsonNumber
    attempt: int = 1
    segment: int = 0
    first_layer: str | None = None
    summary: str = ""


class BacktestRun(msgspec.Struct, frozen=True):
    file: str
    """Of the run: its file, or its id."""
    rows: int
    alerts: list[BacktestAlert]


class BacktestReply(msgspec.Struct, frozen=True):
    runs: list[BacktestRun]


@dataclass(slots=True)
class Backtest:
    """One run, judged from its start."""

    evaluator: Evaluator
    num_rows: int = 0
    _by_episode: dict[str, BacktestAlert] = field(default_factory=dict[str, BacktestAlert])

    @classmethod
    def of_rules(
        cls, rules: Iterable[Rule], known: Mapping[str, float] | None = None
    ) -> "Backtest":
        """With these rules; what they say about silence cannot be asked of stored rows."""
        return cls(Evaluator([rule for rule in rules if rule.absence is None], known))

    def observe(self, rows: Rows) -> None:
        self.num_rows += rows.num_rows
        for transition in self.evaluator.observe(rows):
            self._note(transition)

    def result(self, file: str) -> BacktestRun:
        return BacktestRun(file, self.num_rows, list(self._by_episode.values()))

    def _note(self, transition: Transition) -> None:
        known = self._by_episode.get(transition.episode)
        if transition.state is AlertState.FIRING and known is None:
            self._by_episode[transition.episode] = _alert(transition)
        elif transition.state is AlertState.RESOLVED and known is not None:
            resolved = msgspec.structs.replace(known, resolved_step=transition.step)
            self._by_episode[transition.episode] = resolved


def within(rows: Rows, first_step: int | None, last_step: int | None) -> Iterator[Rows]:
    """The part of consecutive rows that lies between two steps, ends included."""
    start = 0 if first_step is None else int(rows.steps.searchsorted(first_step))
    stop = rows.num_rows if last_step is None else int(rows.steps.searchsorted(last_step, "right"))
    if start < stop:
        yield rows.between(start, stop)


def _alert(transition: Transition) -> BacktestAlert:
    return BacktestAlert(
        alert=transition.rule,
        severity=transition.severity,
        labels=dict(transition.labels),
        pending_step=transition.onset_step,
        firing_step=transition.step,
        resolved_step=None,
        value=to_json(transition.value),
        attempt=transition.attempt,
        segment=transition.segment,
        first_layer=transition.first_layer,
        summary=transition.summary,
    )
