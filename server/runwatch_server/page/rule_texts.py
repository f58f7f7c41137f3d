"""Formats rules for reading and writing: a file's document as YAML, and its rule in one line. No
I/O."""

import copy
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

_WIDTH: Final = 96
_MARK: Final = "WHEN_STANDS_HERE"
_FILE_KEYS: Final = ("version", "metrics", "groups")
_RULE_KEYS: Final = (
    *("alert", "scope", "when", "absence", "min_history", "baseline", "relearn_after"),
    *("for", "keep_firing_for", "inhibited_by", "severity", "shadow", "labels", "annotations"),
)
"""The usual order of keys; any others come last, in their own order."""

NEW_RULE: Final = """\
version: 1
groups:
- name: ours
  rules:
  - alert: GradNormHigh
    scope: run            # run | layer | rank
    when: grad_norm > 10 * median(grad_norm, 128)
    min_history: 64
    for: {steps: 2}
    severity: warning     # info | warning | critical (critical pages)
    annotations:
      summary: "grad_norm {value:.3g} at step {step}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A rule in the list."""

    id: str
    name: str
    source: str
    """`builtin` or `user`."""
    project: str | None
    severity: str
    scope: str
    when: str
    enabled: bool
    is_replaced: bool = False
    """Whether another rule of the same name replaces or disables it."""
    shadow: bool = False
    runbook: str = ""
    says: str = ""
    """What it detects, in a sentence; empty if a user wrote it, or if it is `in_words`."""
    in_words: bool = False
    """Whether `when` is words and not an expression, because the rule is code."""


def rule_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rule of a file that holds one."""
    rule: Mapping[str, Any] = document["groups"][0]["rules"][0]
    return rule


def as_yaml(document: Mapping[str, Any]) -> str:
    """The file as YAML, with its `when` on one line, so that the column of a fault is the column of
    that line."""
    kept = {key: value for key, value in copy.deepcopy(dict(document)).items() if value != []}
    shown = _ordered(kept, _FILE_KEYS)
    rule = shown["groups"][0]["rules"][0] = _ordered(rule_of(shown), _RULE_KEYS)
    when = rule.get("when")
    if isinstance(when, str):
        rule["when"] = _MARK
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.replace(_MARK, _one_line(when)) if isinstance(when, str) else text


def line_of(
    rule_id: str,
    document: Mapping[str, Any],
    *,
    source: str,
    project: str | None = None,
    enabled: bool = True,
) -> RuleLine:
    rule = rule_of(document)
    annotations: Mapping[str, Any] = rule.get("annotations") or {}
    return RuleLine(
        id=rule_id,
        name=str(rule["alert"]),
        source=source,
        project=project,
        severity=str(rule.get("severity", "warning")),
        scope=str(rule.get("scope", "run")),
        when=_condition(rule),
        enabled=enabled,
        shadow=bool(rule.get("shadow", False)),
        runbook=str(annotations.get("runbook", "")),
    )


def changes(before: str, after: str) -> list[tuple[str, str]]:
    """The changes of a text by a version: lines, each with `+`, `-` or ` ` before it."""
    compared = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    return [(line[:1], line[1:]) for line in compared if line[:3] not in ("---", "+++")]


def _ordered(mapping: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    known = {key: mapping[key] for key in keys if key in mapping}
    return {**known, **mapping}


def _condition(rule: Mapping[str, Any]) -> str:
    absence: Mapping[str, Any] | None = rule.get("absence")
    if absence is not None:
        return f"no step for {absence.get('timeout_s', 0):g} s"
    return str(rule.get("when", ""))


def _one_line(text: str) -> str:
    dumped: str = yaml.safe_dump(" ".join(text.split()), width=10**6, allow_unicode=True)
    return dumped.removesuffix("\n").removesuffix("\n...")
