"""docs/reference/builtin-rules.md: the rules that every run starts with."""

from collections import Counter

from tests.house.reference.docstrings import table

from runwatch.rules import Rule
from runwatch.rules.nonfinite_rule import IN_CODE
from runwatch_server.rules.pack import load_builtin

HEAD = """# Built-in rules

Made from the code by `make docs`. {counts}. Each has a runbook; what they catch and miss on real
logs, and what they cost, is in [detection.md](../detection.md), the language in
[rules.md](../rules.md). `NonFinite` and `NonFiniteEvaluation` are
code, and can be neither replaced nor removed.

{overview}

## What each of them asks

{conditions}
"""


def rendered() -> str:
    rules = builtin_rules()
    counts = Counter(str(rule.severity) for rule in rules)
    told = ", ".join(f"{counts[name]} {name}" for name in ("critical", "warning", "info"))
    rows = [
        [
            _linked(rule),
            str(rule.severity),
            str(rule.scope),
            _actions(rule),
            f"`{rule.summary.text}`",
        ]
        for rule in rules
    ]
    return HEAD.format(
        counts=f"{len(rules)} rules: {told}",
        overview=table(["rule", "severity", "scope", "proposes", "says"], rows),
        conditions="\n\n".join(f"### {rule.name}\n\n{_condition(rule)}" for rule in rules),
    )


def builtin_rules() -> list[Rule]:
    return [*IN_CODE, *(filed.rule for filed in load_builtin())]


def _linked(rule: Rule) -> str:
    page = rule.runbook.removeprefix("docs/")
    return f"[{rule.name}](../{page})" if page else rule.name


def _actions(rule: Rule) -> str:
    at_once = ", ".join(f"`{action.kind}`" for action in rule.actions)
    return at_once + "".join(f", then `{rung.kind}`" for rung in rule.ladder)


def _condition(rule: Rule) -> str:
    if rule.when is not None:
        return f"```text\n{rule.text}\n```"
    if rule.absence is not None:
        times = f", and for {rule.absence.times_median:g} times its median step"
        return (
            f"No step for {rule.absence.timeout_s:g} s{times if rule.absence.times_median else ''}."
        )
    return f"{rule.text[0].upper()}{rule.text[1:]}. Defined in code, always on."
