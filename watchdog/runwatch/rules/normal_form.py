"""A rule as a document again: what is stored, shown, and hashed to see whether it changed."""

import msgspec

from runwatch.alerts import Span
from runwatch.commands import AnyAction
from runwatch.ladders import Rung
from runwatch.rules.diagnosis import Diagnosis
from runwatch.rules.rule import Absence, Inhibition, Rule


def document_of(rule: Rule) -> dict[str, object]:
    """The document of a rule: every choice written out, nothing that was left out."""
    document: dict[str, object | None] = {
        "alert": rule.name,
        "scope": rule.scope.value,
        "when": rule.text or None,
        "absence": None if rule.absence is None else _absence_document(rule.absence),
        "min_history": rule.min_history,
        "every": rule.every,
        "baseline": rule.baseline.value,
        "relearn_after": rule.relearn_after or None,
        "for": _span_document(rule.for_),
        "keep_firing_for": _span_document(rule.keep_firing_for),
        "inhibited_by": [_inhibition_document(one) for one in rule.inhibited_by] or None,
        "shadow": rule.shadow or None,
        "severity": rule.severity.value,
        "labels": dict(rule.labels) or None,
        "annotations": rule.annotations or None,
        "diagnosis": _diagnosis_document(rule.diagnosis) or None,
        "actions": [_action_document(action) for action in rule.actions] or None,
        "ladder": [_action_document(rung) for rung in rule.ladder] or None,
    }
    return {name: part for name, part in document.items() if part is not None}


def _absence_document(absence: Absence) -> dict[str, object]:
    phases = {phase.value: factor for phase, factor in absence.phase_factors.items()}
    document: dict[str, object] = {
        "timeout_s": absence.timeout_s,
        "times_median": absence.times_median,
        "times_longest": absence.times_longest or None,
        "once_known": absence.once_known or None,
        "by_phase": absence.by_phase or None,
        "phases": phases or None,
    }
    return {name: part for name, part in document.items() if part is not None}


def _span_document(span: Span) -> dict[str, object] | None:
    if span.steps:
        return {"steps": span.steps}
    if span.rows:
        return {"rows": span.rows}
    return {"seconds": span.seconds} if span.seconds else None


def _diagnosis_document(diagnosis: Diagnosis) -> dict[str, object]:
    causes = [
        {"cause": cause.text, "signs": [sign.value for sign in cause.signs]}
        for cause in diagnosis.causes
    ]
    document: dict[str, object] = {
        "causes": causes,
        "try_first": diagnosis.try_first.text,
        "worked_if": diagnosis.worked_if.text,
    }
    return {name: part for name, part in document.items() if part}


def _inhibition_document(inhibition: Inhibition) -> dict[str, object]:
    return {
        "rules": list(inhibition.rules),
        "within": {"steps": inhibition.within_steps},
        "scope": inhibition.scope.value,
    }


def _action_document(action: AnyAction | Rung) -> dict[str, object]:
    arguments: dict[str, object] = msgspec.to_builtins(action)
    kind = str(arguments.pop("kind"))
    return {kind: {name: value for name, value in arguments.items() if value is not None}}
