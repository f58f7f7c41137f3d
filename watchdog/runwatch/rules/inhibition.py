"""One incident is one alert: which alerts stand for others that they dragged along.

A rule names the rules that explain it (`inhibited_by`). While one of those stands, and for so many
steps around it, the rule's alert is inhibited: judged, kept and shown under the one that explains
it, but nobody is told of it and it asks for no action. When what explained it is over and the alert
still fires, it is released, and people hear of it then.

- An alert is never silenced by one that is less grave: a page stays a page.
- An alert that began long before is no consequence: the steps of the window count from its onset.
- Of rules that name each other in a circle, the edge that closes the circle counts for nothing.

It sees nothing but transitions and steps, so the same data give the same answers, live or replayed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from runwatch.alerts import AlertState, Reason
from runwatch.rules.explanations import Explanation, may_explain
from runwatch.rules.rule import Inhibition, Rule
from runwatch.rules.transitions import Transition
from runwatch.rules.windows import Floats, Ints

_NEVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class InhibitionMemory:
    """All that is remembered between rows."""

    explanations: Mapping[str, Explanation] = field(default_factory=dict[str, Explanation])
    """By rule."""
    standing: Mapping[str, Transition] = field(default_factory=dict[str, Transition])
    """The open alerts of rules that can be inhibited, by rule, as they were last told."""


class Incidents:
    """Which open alerts are inhibited, and by which rule."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._edges = without_circles(rules)
        self._sources = {
            name for edges in self._edges.values() for one in edges for name in one.rules
        }
        self._explanations: dict[str, Explanation] = {}
        self._standing: dict[str, Transition] = {}

    def follow(
        self, found: Sequence[tuple[int, Transition]], steps_T: Ints, times_T: Floats
    ) -> list[Transition]:
        """The transitions of a block of rows, each with its row, in their order: those of alerts
        that are inhibited say so, and what is inhibited or released meanwhile is added."""
        if not found and not self._is_waiting:
            return []
        reported: list[Transition] = []
        place, row = 0, -1
        while True:
            due = self._release_row(steps_T, row + 1)
            row = min(found[place][0] if place < len(found) else len(steps_T), due)
            if row >= len(steps_T):
                return reported
            arrived: list[Transition] = []
            while place < len(found) and found[place][0] == row:
                arrived.append(found[place][1])
                place += 1
            reported += self._take(arrived, int(steps_T[row]), float(times_T[row]))

    def rewind(self, first_step: int) -> None:
        """After a rollback: what explained others ended before the step that is trained again."""
        for rule, source in self._explanations.items():
            self._explanations[rule] = replace(source, last_step=min(source.last_step, first_step))

    def clear(self) -> None:
        """A new attempt starts with a clean sheet."""
        self._explanations.clear()
        self._standing.clear()

    def memory(self) -> InhibitionMemory:
        return InhibitionMemory(dict(self._explanations), dict(self._standing))

    def recall(self, memory: InhibitionMemory, rules: Iterable[str]) -> None:
        """Take back what `memory` gave, of these rules: the others start anew."""
        kept = set(rules)
        self._explanations = {
            rule: source
            for rule, source in memory.explanations.items()
            if rule in kept and rule in self._sources
        }
        self._standing = {
            rule: reported
            for rule, reported in memory.standing.items()
            if rule in kept and rule in self._edges
        }

    @property
    def _is_waiting(self) -> bool:
        return any(reported.inhibited_by is not None for reported in self._standing.values())

    def _release_row(self, steps_T: Ints, first_row: int) -> int:
        """The first row from this one on at which an inhibited alert may have to be released."""
        ends = [
            self._end_of(reported)
            for reported in self._standing.values()
            if reported.inhibited_by is not None and reported.state is AlertState.FIRING
        ]
        end = min(ends, default=_NEVER)
        if end >= _NEVER:
            return len(steps_T)
        return max(first_row, int(np.searchsorted(steps_T, end, side="right")))

    def _take(self, arrived: Sequence[Transition], step: int, at: float) -> list[Transition]:
        for transition in arrived:
            self._note(transition)
        reported: list[Transition] = []
        for transition in arrived:
            if transition.rule in self._standing:
                transition = self._with_explanation(transition, self._why(transition, step))
                self._standing[transition.rule] = transition
            reported.append(transition)
        names = {transition.rule for transition in arrived}
        return reported + [
            changed
            for rule in [rule for rule in self._standing if rule not in names]
            if (changed := self._review(rule, step, at)) is not None
        ]

    def _with_explanation(self, transition: Transition, why: str | None) -> Transition:
        known = self._standing[transition.rule].inhibited_by
        reason = transition.reason
        if reason is Reason.WORSENED and (why is None) != (known is None):
            reason = Reason.RELEASED if why is None else Reason.INHIBITED
        return replace(transition, inhibited_by=why, reason=reason)

    def _note(self, transition: Transition) -> None:
        rule, is_open = transition.rule, transition.state.is_open
        if rule in self._sources and not transition.shadow:
            known = self._explanations.get(rule)
            if is_open or (known is not None and transition.state is AlertState.RESOLVED):
                self._explanations[rule] = Explanation(
                    severity=transition.severity,
                    onset_step=transition.onset_step,
                    last_step=transition.step,
                    is_open=is_open,
                    layers=transition.layers,
                    num_layers=transition.num_layers,
                )
        if rule in self._edges and is_open:
            before = self._standing.get(rule)
            inhibited_by = None if before is None else before.inhibited_by
            self._standing[rule] = replace(transition, inhibited_by=inhibited_by)
        elif transition.state is AlertState.RESOLVED:
            self._standing.pop(rule, None)

    def _review(self, rule: str, step: int, at: float) -> Transition | None:
        """What to tell of an open alert of which no transition came."""
        reported = self._standing[rule]
        why = self._why(reported, step)
        if (why is None) == (reported.inhibited_by is None):
            return None
        if why is None and reported.state is not AlertState.FIRING:
            return None  # should it come back, it is told then
        reason = Reason.RELEASED if why is None else Reason.INHIBITED
        after = replace(reported, inhibited_by=why, reason=reason, step=step, at=at)
        self._standing[rule] = after
        return after

    def _why(self, reported: Transition, step: int) -> str | None:
        """The rule that explains an alert now: the one that did, as long as it does."""
        reasons = [
            rule
            for edge in self._edges[reported.rule]
            for rule in edge.rules
            if self._explains(rule, edge, reported, step)
        ]
        if reported.inhibited_by in reasons:
            return reported.inhibited_by
        return reasons[0] if reasons else None

    def _explains(self, rule: str, edge: Inhibition, reported: Transition, step: int) -> bool:
        source = self._explanations.get(rule)
        if source is None or not may_explain(source, edge, reported):
            return False
        return source.is_open or step - source.last_step <= edge.within_steps

    def _end_of(self, reported: Transition) -> int:
        """The last step at which the alert is inhibited, as far as is known now."""
        ends = [
            _NEVER if source.is_open else source.last_step + edge.within_steps
            for edge in self._edges[reported.rule]
            for rule in edge.rules
            if (source := self._explanations.get(rule)) is not None
            and may_explain(source, edge, reported)
        ]
        return max(ends, default=-1)


def without_circles(rules: Sequence[Rule]) -> dict[str, tuple[Inhibition, ...]]:
    """Who is inhibited by whom, without what would let two alerts hide behind each other."""
    behind: dict[str, set[str]] = {rule.name: set() for rule in rules}
    edges: dict[str, tuple[Inhibition, ...]] = {}
    for rule in rules:
        kept: list[Inhibition] = []
        for one in rule.inhibited_by:
            names = tuple(name for name in one.rules if not _reaches(behind, name, rule.name))
            behind[rule.name].update(names)
            kept.append(replace(one, rules=names))
        if kept:
            edges[rule.name] = tuple(kept)
    return edges


def _reaches(behind: Mapping[str, set[str]], start: str, goal: str) -> bool:
    """Whether a rule is the other, or is inhibited by it through any number of others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(behind.get(name, ()))
    return False
