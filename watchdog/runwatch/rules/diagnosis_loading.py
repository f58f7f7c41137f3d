"""The part of a rule's document that says what may be behind its alert."""

from typing import Final

from runwatch.errors import Fault
from runwatch.rules import templates
from runwatch.rules.diagnosis import Cause, Diagnosis, Sign
from runwatch.rules.reading import Fields
from runwatch.rules.templates import Template

_MAX_CAUSES: Final = 8
_MAX_SIGNS: Final = 12


def load_diagnosis(rule: Fields, faults: list[Fault]) -> Diagnosis:
    """What stands under `diagnosis`; empty where there is none."""
    fields = rule.fields("diagnosis")
    if fields is None:
        return Diagnosis()
    causes = tuple(_load_cause(cause) for cause in fields.each("causes", most=_MAX_CAUSES))
    texts = [
        fields.text(name, most=templates.MAX_TEMPLATE_CHARS) for name in ("try_first", "worked_if")
    ]
    for name, text in zip(("try_first", "worked_if"), texts, strict=True):
        faults.extend(templates.faults_of(text, fields.place_of(name)))
    fields.finish()
    return Diagnosis(causes, Template(texts[0]), Template(texts[1]))


def _load_cause(fields: Fields) -> Cause:
    text = fields.text("cause", required=True)
    if "{" in text or "}" in text:
        fields.note("cause", "found a brace, wanted a text without placeholders")
    known = {sign.value for sign in Sign}
    signs: list[Sign] = []
    for index, name in enumerate(fields.items("signs", most=_MAX_SIGNS)):
        if isinstance(name, str) and name in known:
            signs.append(Sign(name))
        else:
            fields.note(f"signs[{index}]", f"wanted one of {', '.join(sorted(known))}")
    fields.finish()
    return Cause(text, tuple(signs))
