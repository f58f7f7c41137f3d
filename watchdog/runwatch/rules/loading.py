"""Rule documents, as parsed from YAML or JSON, into rules; all faults are found at once.

version: 1
metrics: [reward]               # names of one's own metrics that the rules read
groups:
- name: stability
  rules:
  - alert: GradNormSpike
    scope: layer                # run | layer | rank
    when: grad_norm > 10 * median(grad_norm, 128)
"""

import re
from collections.abc import Collection
from typing import Final

from runwatch.errors import Fault, RuleError
from runwatch.rules.block import Level
from runwatch.rules.condition import condition_of
from runwatch.rules.limits import (
    BYTES_PER_SAMPLE,
    MAX_RULES,
    MAX_STATE_BYTES,
    NOMINAL_LAYERS,
)
from runwatch.rules.reading import Fields
from runwatch.rules.rule import Rule
from runwatch.rules.rule_loading import RuleLoader

VERSION: Final = 1

_SERIES_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


def load_rules(document: object, *, metrics: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules of a whole document. Raises RuleError with every fault in it.

    `metrics` are names of the user's own metrics, as a rule writes them (`rule_name`), beside
    those that the document lists itself.
    """
    faults: list[Fault] = []
    fields = Fields(document, "", faults)
    if fields.take("version") != VERSION:
        fields.note("version", f"found {fields.take('version')!r}, wanted {VERSION}"[:200])
    announced = frozenset(metrics) | _announced(fields)
    rules: list[Rule] = []
    for group in fields.each("groups", most=MAX_RULES):
        rules += _load_group(group, announced, faults)
    if not fields.holds("groups"):
        fields.note("groups", "found nothing, wanted a list of groups")
    fields.finish()
    _check_together(rules, fields)
    if faults:
        raise RuleError(faults)
    return tuple(rules)


def _announced(fields: Fields) -> frozenset[str]:
    names = fields.items("metrics", most=512)
    for index, name in enumerate(names):
        if not (isinstance(name, str) and _SERIES_NAME.fullmatch(name)):
            fields.note(f"metrics[{index}]", "wanted a name of letters, digits and underscores")
    return frozenset(name for name in names if isinstance(name, str))


def _load_group(fields: Fields, announced: frozenset[str], faults: list[Fault]) -> list[Rule]:
    name = fields.text("name", required=True, most=64)
    rules: list[Rule] = []
    for one in fields.each("rules", most=MAX_RULES):
        num_faults = len(faults)
        rule = RuleLoader(one, announced, faults).load(name)
        if len(faults) == num_faults:
            rules.append(rule)
    fields.finish()
    return rules


def _check_together(rules: list[Rule], fields: Fields) -> None:
    """What is only wrong about the rules as a whole."""
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            fields.note("", f"found two rules of the name {rule.name}, wanted every name once")
        seen.add(rule.name)
    if len(rules) > MAX_RULES:
        fields.note("groups", f"found {len(rules)} rules, wanted at most {MAX_RULES}")
    found = state_bytes(rules, NOMINAL_LAYERS)
    if found > MAX_STATE_BYTES:
        wanted = f"wanted at most {MAX_STATE_BYTES // 2**20} MiB"
        many = f"the windows of all rules take {found // 2**20} MiB with {NOMINAL_LAYERS} layers"
        fields.note("groups", f"found that {many}, {wanted}")


def state_bytes(rules: Collection[Rule], num_layers: int) -> int:
    """What the distinct windows of these rules hold, in a run of so many layers."""
    keys = {
        key for rule in rules if rule.when is not None for key in condition_of(rule).window_keys()
    }
    samples = sum(key.size * (num_layers if key.level is Level.LAYER else 1) for key in keys)
    return samples * BYTES_PER_SAMPLE
