"""One incident is one alert: which alerts stand for others that they dragged along.

A rule names the rules that explain it (`inhibited_by`). While one of those stands, and for so many
steps around it, the rule's alert is inhibited: judged, kept and shown under the one that explains
it, but nobody is told of it and it asks for no action. When what explained it is over and the alert
still fires, it is released, and people hear of it then.

- An alert is never silenced by one that is less grave: a page stays a page.
- A page is not over while another that it explained goes on or is to come: whoever was woken would
  be told that all is well. But it explains no longer, and what goes on is released in its time.
- An alert that began long before is no consequence: the steps of the window count from its onset.
- Of rules that name each other, or in a circle, the one that fired first explains the others.

It sees nothing but transitions and steps, so the same data give the same answers, live or replayed.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from runwatch.alerts import AlertState, Reason
from runwatch.rules.explanations import Explanation, may_explain
from runwatch.rules.rule import Inhibition, Rule
from runwatch.rules.transitions import Transition
from runwatch.rules.windows import Floats, Ints
from runwatch.vocabulary import Severity

_NEVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class InhibitionMemory:
    """All that is remembered between rows."""

    explanations: Mapping[str, Explanation] = field(default_factory=dict[str, Explanation])
    """By rule."""
    standing: Mapping[str, Transition] = field(default_factory=dict[str, Transition])
    """The open alerts of rules that can be inhibited, by rule, as they were last told."""
    pending: Mapping[str, Transition] = field(default_factory=dict[str, Transition])
    """Pages to come, by rule, as far as they can be inhibited."""
    ends: Mapping[str, Transition] = field(default_factory=dict[str, Transition])
    """Of pages that explain others which go on or are to come, by rule: not told yet."""


class Incidents:
    """Which open alerts are inhibited, and by which rule."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._edges = {rule.name: rule.inhibited_by for rule in rules if rule.inhibited_by}
        self._sources = {
            name for edges in self._edges.values() for one in edges for name in one.rules
        }
        self._explanations: dict[str, Explanation] = {}
        self._standing: dict[str, Transition] = {}
        self._pending: dict[str, Transition] = {}
        self._ends: dict[str, Transition] = {}

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
        self._pending.clear()
        self._ends.clear()

    def memory(self) -> InhibitionMemory:
        return InhibitionMemory(
            dict(self._explanations), dict(self._standing), dict(self._pending), dict(self._ends)
        )

    def recall(self, memory: InhibitionMemory, rules: Iterable[str]) -> None:
        """Take back what `memory` gave, of these rules: the others start anew."""
        kept = set(rules)
        self._explanations = {
            rule: source
            for rule, source in memory.explanations.items()
            if rule in kept and rule in self._sources
        }
        self._standing = _of_rules(memory.standing, kept & self._edges.keys())
        self._pending = _of_rules(memory.pending, kept & self._edges.keys())
        self._ends = _of_rules(memory.ends, kept)

    @property
    def _is_waiting(self) -> bool:
        return bool(self._ends) or any(
            reported.inhibited_by is not None for reported in self._standing.values()
        )

    def _release_row(self, steps_T: Ints, first_row: int) -> int:
        """The first row from this one on at which an inhibited alert may have to be released."""
        if any(not self._goes_on(rule) for rule in self._ends):  # its rules are others now
            return first_row
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
        arrived = self._without_ends_to_come(arrived, step, at)
        known = set(self._standing)
        for transition in arrived:
            self._note(transition)
        # What is new comes first: it is explained by what people know already, not the reverse.
        for place in sorted(range(len(arrived)), key=lambda place: arrived[place].rule in known):
            told = arrived[place]
            if told.state.is_open and told.rule in self._standing:
                told = self._with_explanation(told, self._why(told, step))
                self._standing[told.rule] = arrived[place] = told
        names = {transition.rule for transition in arrived}
        reviewed = [
            changed
            for rule in [rule for rule in self._standing if rule not in names]
            if (changed := self._review(rule, step, at)) is not None
        ]
        return [*arrived, *reviewed, *self._ends_due(arrived, step, at)]

    def _without_ends_to_come(
        self, arrived: Sequence[Transition], step: int, at: float
    ) -> list[Transition]:
        """What arrived, without the ends of pages that explain others which go on or are to come.
        Before a rule's next alert comes the end of its last."""
        kept: list[Transition] = []
        for transition in arrived:
            rule = transition.rule
            if transition.state is AlertState.FIRING and rule in self._ends:
                kept.append(replace(self._ends.pop(rule), step=step, at=at))
            self._note_explanation(transition)
            if transition.reason is Reason.RECOVERED and self._has_to_wait(rule):
                self._ends[rule] = transition
            else:
                kept.append(transition)
        return kept

    def _ends_due(self, arrived: Sequence[Transition], step: int, at: float) -> list[Transition]:
        """The ends that have waited for what they explained, and need wait no longer."""
        due = [rule for rule in self._ends if not self._goes_on(rule)]
        has_ended = any(transition.reason is Reason.ENDED for transition in arrived)
        reason = Reason.ENDED if has_ended else Reason.RECOVERED
        ends = [replace(self._ends.pop(rule), step=step, at=at, reason=reason) for rule in due]
        for rule in due:
            self._standing.pop(rule, None)
        return ends

    def _has_to_wait(self, rule: str) -> bool:
        """Whether people were told of the rule's alert, and would be of another after its end."""
        reported = self._standing.get(rule)
        return (reported is None or reported.inhibited_by is None) and self._goes_on(rule)

    def _goes_on(self, rule: str) -> bool:
        """Whether the rule's alert was a page, and another that it explained is open or to come."""
        source = self._explanations.get(rule)
        if source is None or source.severity is not Severity.CRITICAL:
            return False
        return any(
            may_explain(source, edge, reported)
            and reported.onset_step - source.last_step <= edge.within_steps
            for reported in (*self._standing.values(), *self._pending.values())
            if reported.severity is Severity.CRITICAL and reported.rule not in self._ends
            for edge in self._edges[reported.rule]
            if rule in edge.rules
        )

    def _with_explanation(self, transition: Transition, why: str | None) -> Transition:
        known = self._standing[transition.rule].inhibited_by
        reason = transition.reason
        if reason is Reason.WORSENED and (why is None) != (known is None):
            reason = Reason.RELEASED if why is None else Reason.INHIBITED
        return replace(transition, inhibited_by=why, reason=reason)

    def _note_explanation(self, transition: Transition) -> None:
        rule, is_open = transition.rule, transition.state.is_open
        if rule not in self._sources or transition.shadow:
            return
        before = self._standing.get(rule)
        is_over = rule in self._explanations and transition.state is AlertState.RESOLVED
        if is_open or is_over:
            self._explanations[rule] = Explanation(
                severity=transition.severity,
                onset_step=transition.onset_step,
                last_step=transition.step,
                is_open=is_open,
                layers=transition.layers,
                num_layers=transition.num_layers,
                inhibited_by=None if before is None else before.inhibited_by,
            )

    def _note(self, transition: Transition) -> None:
        rule = transition.rule
        self._pending.pop(rule, None)
        if transition.state is AlertState.RESOLVED:
            self._standing.pop(rule, None)
        elif rule in self._edges and transition.state is AlertState.PENDING:
            self._pending[rule] = transition
        elif rule in self._edges and transition.state.is_open:
            before = self._standing.get(rule)
            inhibited_by = None if before is None else before.inhibited_by
            self._standing[rule] = replace(transition, inhibited_by=inhibited_by)

    def _review(self, rule: str, step: int, at: float) -> Transition | None:
        """What to tell of an open alert of which no transition came."""
        reported = self._standing[rule]
        why = self._why(reported, step)
        if why == reported.inhibited_by:
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
        if self._is_behind(rule, reported.rule):
            return False
        return source.is_open or step - source.last_step <= edge.within_steps

    def _is_behind(self, rule: str, goal: str) -> bool:
        """Whether a rule's alert is, or was when it was over, explained by another's, through any
        number of others: then it is no explanation of that one."""
        seen: set[str] = set()
        name: str | None = rule
        while name is not None and name not in seen:
            seen.add(name)
            open_alert, source = self._standing.get(name), self._explanations.get(name)
            known = source if open_alert is None else open_alert
            name = None if known is None else known.inhibited_by
            if name == goal:
                return True
        return False

    def _end_of(self, reported: Transition) -> int:
        """The last step at which what explains the alert now does, as far as is known now."""
        ends = [
            _NEVER if source.is_open else source.last_step + edge.within_steps
            for edge in self._edges[reported.rule]
            for rule in edge.rules
            if rule == reported.inhibited_by
            and (source := self._explanations.get(rule)) is not None
            and may_explain(source, edge, reported)
        ]
        return max(ends, default=-1)


def _of_rules(transitions: Mapping[str, Transition], rules: Set[str]) -> dict[str, Transition]:
    return {rule: transition for rule, transition in transitions.items() if rule in rules}
