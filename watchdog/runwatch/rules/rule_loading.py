"""One rule's mapping, as parsed from YAML or JSON, on its way to a Rule; all faults are noted."""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeVar

from runwatch.alerts import Span
from runwatch.commands import ACTION_KINDS, action_from_document
from runwatch.errors import CommandError, Fault
from runwatch.ladders import MAX_RUNGS, RUNG_KINDS, Rung, faults_of, rung_from_document
from runwatch.rules import templates
from runwatch.rules.diagnosis_loading import load_diagnosis
from runwatch.rules.expressions import Truth, has_baseline
from runwatch.rules.limits import MAX_RULES, MAX_TEXT_CHARS, MAX_WINDOW
from runwatch.rules.names import is_metric
from runwatch.rules.nonfinite_rule import IN_CODE_NAMES
from runwatch.rules.normal_form import document_of
from runwatch.rules.parsing import parse_condition
from runwatch.rules.reading import Fields
from runwatch.rules.rule import Absence, Baseline, Inhibition, Rule
from runwatch.rules.templates import Template
from runwatch.vocabulary import Phase, Scope, Severity

_MAX_SPAN_STEPS: Final = 10**9
_MAX_SPAN_S: Final = 30 * 86_400.0
_MAX_LABELS: Final = 16
_MAX_ACTIONS: Final = 4
_MAX_INHIBITIONS: Final = 8
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RESERVED_LABELS: Final = frozenset(
    ("alertname", "severity", "project", "run", "run_id", "attempt", "segment", "rank", "layer")
)

_Asked = TypeVar("_Asked")


class RuleLoader:
    """One rule's mapping on its way to a Rule."""

    def __init__(self, fields: Fields, announced: frozenset[str], faults: list[Fault]) -> None:
        self._fields = fields
        self._announced = announced
        self._faults = faults

    def load(self, group: str) -> Rule:
        fields = self._fields
        name = self._name()
        scope = fields.choice("scope", Scope.RUN)
        text, condition = self._condition(scope)
        absence = self._absence()
        if fields.holds("when") == fields.holds("absence"):
            fields.note("", "wanted either `when` or `absence`, and one of them")
        summary, description, runbook = self._annotations()
        baseline, relearn_after = self._baseline(condition)
        rule = Rule(
            name=name,
            scope=scope,
            when=condition,
            absence=absence,
            text=text,
            min_history=fields.whole("min_history", lowest=1, highest=MAX_WINDOW),
            for_=self._span("for"),
            keep_firing_for=self._span("keep_firing_for"),
            severity=fields.choice("severity", Severity.WARNING),
            labels=self._labels(),
            summary=summary,
            description=description,
            runbook=runbook,
            diagnosis=load_diagnosis(fields, self._faults),
            actions=tuple(self._asked("actions", _MAX_ACTIONS, ACTION_KINDS, action_from_document)),
            ladder=self._ladder(),
            every=self._every(),
            baseline=baseline,
            relearn_after=relearn_after,
            inhibited_by=self._inhibited_by(name),
            shadow=fields.truth("shadow"),
            group=group,
        )
        fields.finish()
        return replace(rule, document=document_of(rule))

    def _name(self) -> str:
        name = self._fields.text("alert", required=True)
        if name and not _NAME.fullmatch(name):
            wanted = "wanted a letter, then at most 63 letters, digits and underscores"
            self._fields.note("alert", f"found {name[:80]!r}, {wanted}")
        if name in IN_CODE_NAMES:
            self._fields.note("alert", f"found {name}, which is built in, wanted another name")
        return name

    def _condition(self, scope: Scope) -> tuple[str, Truth | None]:
        if not self._fields.holds("when"):
            return "", None
        # One character over the limit stays in, for the parser to name the column.
        text = self._fields.text("when", required=True, most=100 * MAX_TEXT_CHARS)
        if not text:
            return "", None
        place = self._fields.place_of("when")
        parsed = parse_condition(text, place=place, scope=scope, announced=self._announced)
        self._faults.extend(parsed.faults)
        return text, parsed.condition

    def _absence(self) -> Absence | None:
        fields = self._fields.fields("absence")
        if fields is None:
            return None
        phases = fields.fields("phases")
        factors: dict[Phase, float] = {}
        if phases is not None:
            for phase in Phase:
                factors[phase] = phases.number(phase.value, default=1.0, lowest=0.0, highest=1000.0)
            phases.finish()
        absence = Absence(
            timeout_s=fields.number("timeout_s", default=300.0, lowest=1.0, highest=_MAX_SPAN_S),
            times_median=fields.number("times_median", default=0.0, lowest=0.0, highest=1e4),
            times_longest=fields.number("times_longest", default=0.0, lowest=0.0, highest=1e4),
            once_known=fields.truth("once_known"),
            by_phase=fields.truth("by_phase"),
            phase_factors=factors,
        )
        fields.finish()
        return absence

    def _span(self, name: str) -> Span:
        fields = self._fields.fields(name)
        if fields is None:
            return Span()
        steps = fields.whole("steps", lowest=0, highest=_MAX_SPAN_STEPS)
        rows = fields.whole("rows", lowest=0, highest=_MAX_SPAN_STEPS)
        seconds = fields.number("seconds", default=0.0, lowest=0.0, highest=_MAX_SPAN_S)
        given = [unit for unit in ("steps", "rows", "seconds") if fields.holds(unit)]
        if len(given) != 1:
            fields.note("", "wanted one of {steps: ...}, {rows: ...} and {seconds: ...}")
        for unit in given:
            if unit != "seconds" and self._fields.holds("absence"):
                wanted = "in an absence rule, in which none come; wanted seconds"
                fields.note(unit, f"found {unit} {wanted}")
        fields.finish()
        return Span(steps or 0, seconds, rows or 0)

    def _labels(self) -> dict[str, str]:
        fields = self._fields.fields("labels")
        if fields is None:
            return {}
        names = fields.names()
        if len(names) > _MAX_LABELS:
            fields.note("", f"found {len(names)} labels, wanted at most {_MAX_LABELS}")
        for name in names:
            if not _NAME.fullmatch(name) or name in _RESERVED_LABELS:
                wanted = f"wanted a word that is none of {', '.join(sorted(_RESERVED_LABELS))}"
                fields.note(name[:80], f"found a label name that cannot be used, {wanted}")
        return {name: fields.text(name) for name in names[:_MAX_LABELS]}

    def _annotations(self) -> tuple[Template, Template, str]:
        fields = self._fields.fields("annotations")
        if fields is None:
            return Template(""), Template(""), ""
        texts = [
            fields.text(name, most=templates.MAX_TEMPLATE_CHARS)
            for name in ("summary", "description")
        ]
        for name, text in zip(("summary", "description"), texts, strict=True):
            self._faults.extend(templates.faults_of(text, fields.place_of(name)))
        runbook = fields.text("runbook")
        fields.finish()
        return Template(texts[0]), Template(texts[1]), runbook

    def _asked(
        self,
        name: str,
        most: int,
        known: Collection[str],
        read: Callable[[object], _Asked],
    ) -> list[_Asked]:
        """What a list such as `[{checkpoint: {}}, {lower_lr: {scale: 0.5}}]` asks for."""
        found: list[_Asked] = []
        for fields in self._fields.each(name, most=most):
            kinds = fields.names()
            if len(kinds) != 1:
                fields.note("", "wanted one action, such as {lower_lr: {scale: 0.5}}")
                continue
            if kinds[0] not in known:
                fields.note("", f"found {kinds[0][:80]!r}, wanted one of {', '.join(known)}")
                continue
            arguments = fields.fields(kinds[0])
            given = {} if arguments is None else {n: arguments.take(n) for n in arguments.names()}
            try:
                found.append(read({**given, "kind": kinds[0]}))
            except CommandError as error:
                fields.note("", str(error))
        return found

    def _ladder(self) -> tuple[Rung, ...]:
        ladder = self._asked("ladder", MAX_RUNGS, RUNG_KINDS, rung_from_document)
        for index, fault in faults_of(ladder):
            self._fields.note(f"ladder[{index}]", fault)
        if ladder and self._fields.holds("absence"):
            self._fields.note(
                "ladder", "found one in an absence rule: a run that does not step obeys nothing"
            )
        return tuple(ladder)

    def _every(self) -> str | None:
        name = self._fields.text("every")
        if name and not is_metric(name, self._announced):
            self._fields.note("every", f"found {name[:80]!r}, wanted the name of a known metric")
        return name or None

    def _baseline(self, condition: Truth | None) -> tuple[Baseline, int]:
        baseline = self._fields.choice("baseline", Baseline.ALL)
        relearn_after = self._fields.whole("relearn_after", lowest=1, highest=_MAX_SPAN_STEPS)
        if baseline is Baseline.CLEAN and condition is not None and not has_baseline(condition):
            self._fields.note(
                "baseline", "found clean in a rule without a window of what is normal"
            )
        if relearn_after is not None and baseline is not Baseline.CLEAN:
            self._fields.note("relearn_after", "wanted `baseline: clean` beside it")
        return baseline, relearn_after or 0

    def _inhibited_by(self, name: str) -> tuple[Inhibition, ...]:
        found: list[Inhibition] = []
        for fields in self._fields.each("inhibited_by", most=_MAX_INHIBITIONS):
            names = fields.items("rules", most=MAX_RULES)
            for index, other in enumerate(names):
                if not (isinstance(other, str) and _NAME.fullmatch(other)) or other == name:
                    fields.note(f"rules[{index}]", "wanted the name of another rule")
            within = fields.fields("within")
            steps = None
            if within is not None:
                steps = within.whole("steps", lowest=0, highest=_MAX_SPAN_STEPS)
                within.finish()
            scope = fields.choice("scope", Scope.RUN)
            if scope is Scope.RANK:
                fields.note("scope", "found rank, wanted run or layer")
            fields.finish()
            others = tuple(other for other in names if isinstance(other, str))
            found.append(Inhibition(others, 64 if steps is None else steps, scope))
        if self._fields.holds("absence") and any(one != Inhibition(one.rules) for one in found):
            self._fields.note(
                "inhibited_by",
                "found within or scope in an absence rule, which knows no steps or layers; "
                "wanted the names of other absence rules alone",
            )
        return tuple(found)
