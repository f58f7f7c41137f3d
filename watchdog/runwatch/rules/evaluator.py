"""The streaming evaluator: rows in, changes of alerts out.

It has no clock and reads nothing but its rows, so the same rows give the same transitions, live,
in a backtest and in a rule's test, and however they were cut into frames.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from runwatch.alerts import Change, Moment
from runwatch.rules.background import Background
from runwatch.rules.block import Block, Level
from runwatch.rules.evaluation import Laid
from runwatch.rules.following import Found
from runwatch.rules.inhibition import Incidents
from runwatch.rules.judging import ConditionJudge
from runwatch.rules.layer_families import LayerFamilies, laid_among
from runwatch.rules.named_layers import NamedLayers
from runwatch.rules.nonfinite_judge import NonFiniteJudge
from runwatch.rules.nonfinite_rule import IN_CODE, IN_CODE_NAMES
from runwatch.rules.objectives import Objectives
from runwatch.rules.observations import Rows
from runwatch.rules.recorded_names import RecordedNames
from runwatch.rules.rule import Rule
from runwatch.rules.saving import Memory, dump, load
from runwatch.rules.single_row import SingleRow
from runwatch.rules.standing import BYTES_PER_COLUMN, Standing
from runwatch.rules.transitions import Transition
from runwatch.rules.unplaced_events import UnplacedEvents
from runwatch.rules.window_keys import Histories, forget_objective

_BLOCK_VALUES: Final = 2**16
"""Values of one stat in a block: few enough for the cache, enough to spread numpy's cost a call."""
_MAX_BLOCK_ROWS: Final = 4096
_MIN_BLOCK_ROWS: Final = 16
_SHORT_BLOCK_ROWS: Final = 8
"""Up to here a rule of the run costs less as floats, row by row, than as arrays."""
_STEP_TIMES_KEPT: Final = 64
_LEAST_BYTES: Final = 256 * 1024
"""Memory of an evaluator without windows and layers, with the built-in rules."""

Judge = ConditionJudge | NonFiniteJudge


class Evaluator:
    """Judges rules over one rank's rows, in order; those of IN_CODE always, and before all others.

    Absence rules are not judged here: silence brings no rows (see `judge_absence`).
    """

    def __init__(self, rules: Sequence[Rule], known: Mapping[str, float] | None = None) -> None:
        """`known` is what is known beside the rows (see `background`)."""
        self._background = Background(dict(known or {}))
        self.rules = (*IN_CODE, *(rule for rule in rules if rule.name not in IN_CODE_NAMES))
        self._attempt: int | None = None
        self._segment = 0
        self._rank = 0
        self._layers: tuple[str, ...] = ()
        self._families = LayerFamilies()
        self._objectives = Objectives()
        self._unplaced = UnplacedEvents()
        self._named = NamedLayers()
        self._names = RecordedNames()
        self._stamps: list[tuple[int, float]] = []
        self._histories: Histories = {}
        self._incidents = Incidents(self.rules)
        self._judges: list[Judge] = [
            NonFiniteJudge(rule, ()) if rule.name in IN_CODE_NAMES else ConditionJudge(rule, ())
            for rule in self.rules
            if rule.absence is None
        ]

    @property
    def median_step_s(self) -> float | None:
        """Of the recent steps, by the trainer's clock; None while there are fewer than eight."""
        durations = [
            (after[1] - before[1]) / (after[0] - before[0])
            for before, after in pairwise(self._stamps)
            if after[0] > before[0]
        ]
        return float(np.median(durations)) if len(durations) >= 8 else None

    def observe(self, rows: Rows) -> list[Transition]:
        """The changes that these rows bring, in the order of the rows, and of the rules in each."""
        if rows.num_rows == 0:
            self._unplaced.note(rows)
            self._named.note(rows)
            return []
        transitions = self._arrive(rows)
        rows = self._names.put_on(rows)
        rows = self._named.put_on(self._unplaced.put_on(rows))
        rows = laid_among(rows, self._layers)
        self._background.note(rows)
        rows = self._background.put_behind(rows)
        num_layers = len(self._layers)
        height = min(_MAX_BLOCK_ROWS, max(_MIN_BLOCK_ROWS, _BLOCK_VALUES // max(num_layers, 1)))
        with np.errstate(all="ignore"):  # what is not finite is a verdict here, not an accident
            for start in range(0, rows.num_rows, height):
                is_all = rows.num_rows <= height
                block = rows if is_all else rows.between(start, start + height)
                for part, is_another in self._objectives.parts_of(block):
                    if is_another:
                        forget_objective(self._histories)
                    transitions += self._judge(part)
        self._note_times(rows)
        return transitions

    @property
    def num_bytes(self) -> int:
        """About how much memory it takes."""
        histories = sum(history.num_bytes for history in self._histories.values())
        columns = sum(len(judge.standing.columns) for judge in self._judges)
        return _LEAST_BYTES + histories + BYTES_PER_COLUMN * columns

    @property
    def known_to_next(self) -> dict[str, float]:
        """What the evaluator of the next attempt is to know of this one."""
        return self._background.next_attempt()

    def state(self) -> bytes:
        """All that it remembers."""
        return dump(
            Memory(
                attempt=self._attempt,
                segment=self._segment,
                rank=self._rank,
                layers=self._layers,
                families=self._families.memory(),
                stamps=tuple(self._stamps),
                histories={key.text: history for key, history in self._histories.items()},
                standings={judge.rule.hash: judge.standing.memory() for judge in self._judges},
                incidents=self._incidents.memory(),
                known=self._background.known,
                latest=self._background.latest,
                objectives=self._objectives.memory(),
                unplaced=self._unplaced.memory(),
                named=self._named.memory(),
                names=self._names.memory(),
            )
        )

    @classmethod
    def restore(cls, rules: Sequence[Rule], state: bytes) -> "Evaluator":
        """An evaluator that goes on exactly where the saved one stopped.

        A rule that is new, or was changed since, starts without history and without an alert.
        Raises ValueError where `state` was not made by `state()`.
        """
        evaluator = cls(rules)
        memory = load(state)
        evaluator._attempt, evaluator._segment = memory.attempt, memory.segment
        evaluator._rank, evaluator._stamps = memory.rank, list(memory.stamps)
        evaluator._set_layers(memory.layers)
        evaluator._families.recall(memory.families, memory.layers)
        latest = {name: list(values) for name, values in memory.latest.items()}
        evaluator._background = Background(dict(memory.known), latest)
        evaluator._objectives.recall(memory.objectives)
        evaluator._unplaced = UnplacedEvents.of(memory.unplaced)
        evaluator._named = NamedLayers.of(memory.named)
        evaluator._names.recall(memory.names)
        for judge in evaluator._judges:
            if judge.rule.hash not in memory.standings:
                continue
            judge.standing.recall(memory.standings[judge.rule.hash])
            for key in judge.window_keys():
                if key.text in memory.histories:
                    evaluator._histories[key] = memory.histories[key.text]
        kept = (rule.name for rule in evaluator.rules if rule.hash in memory.standings)
        evaluator._incidents.recall(memory.incidents, kept)
        return evaluator

    def _arrive(self, rows: Rows) -> list[Transition]:
        """Make room for what the rows bring that is new: an attempt, a segment, other layers."""
        now = Moment(int(rows.steps[0]), float(rows.times[0]))
        transitions: list[Transition] = []
        if self._attempt is not None and rows.attempt != self._attempt:
            transitions = self._end_attempt(now)
        elif rows.segment != self._segment and self._attempt is not None:
            transitions = self._rewind(now)
        self._attempt, self._segment, self._rank = rows.attempt, rows.segment, rows.rank
        if rows.layer_names:
            layers = self._families.joined_with(rows.stat_names, rows.layer_names)
            if layers != self._layers:
                self._set_layers(layers)
        return transitions

    def _end_attempt(self, now: Moment) -> list[Transition]:
        self._histories.clear()
        self._stamps.clear()
        self._families.clear()
        self._objectives.clear()
        self._names.clear()
        transitions = self._change_all(now, Standing.end)
        self._incidents.clear()
        self._background.end_attempt()
        return transitions

    def _rewind(self, now: Moment) -> list[Transition]:
        for history in self._histories.values():
            history.forget(now.step)
        self._stamps.clear()
        self._objectives.rewind()
        self._named.rewind(now.step)
        self._incidents.rewind(now.step)
        return self._change_all(now, lambda standing, at: standing.rewind(at.step, at))

    def _change_all(
        self, now: Moment, act: Callable[[Standing, Moment], Change]
    ) -> list[Transition]:
        transitions: list[Transition] = []
        for judge in self._judges:
            standing = judge.standing
            before = standing.alert
            change = act(standing, now)
            if change.is_news:
                transitions.append(standing.transition_of(change, before, now, self._rank))
        found = [(0, transition) for transition in transitions]
        return self._incidents.follow(found, np.array([now.step]), np.array([now.at]))

    def _judge(self, rows: Rows) -> list[Transition]:
        block = Block(rows, len(self._layers))
        laid: Laid = {}
        is_short = rows.num_rows <= _SHORT_BLOCK_ROWS
        places = range(rows.num_rows if is_short else 0)
        singly = [SingleRow(block, place, self._histories) for place in places]
        found: Found = []
        for judge in self._judges:
            found += judge.judge(block, self._histories, laid, singly)
        for key in laid:
            self._histories[key].keep()
        found.sort(key=lambda pair: pair[0])
        return self._incidents.follow(found, rows.steps, rows.times)

    def _set_layers(self, layers: tuple[str, ...]) -> None:
        """Put the layers into this order; those that were known before keep what is theirs."""
        place = {name: column for column, name in enumerate(self._layers)}
        sources = [place.get(name) for name in layers]
        for key, history in self._histories.items():
            if key.level is Level.LAYER:
                self._histories[key] = history.reordered(sources)
        for judge in self._judges:
            columns = judge.columns_of(layers)
            known = {name: column for column, name in enumerate(judge.standing.columns)}
            judge.standing = judge.standing.reordered(columns, [known.get(c) for c in columns])
        self._layers = layers

    def _note_times(self, rows: Rows) -> None:
        latest = slice(-_STEP_TIMES_KEPT, None)
        arrived = zip(rows.steps[latest].tolist(), rows.times[latest].tolist(), strict=True)
        self._stamps = [*self._stamps, *arrived][latest]
