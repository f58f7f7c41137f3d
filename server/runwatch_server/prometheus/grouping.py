"""Arranges the rules in force, with their open alerts, in Prometheus' files and groups."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from runwatch.rules import IN_CODE, Rule
from runwatch_server.prometheus.shapes import PromAlert, PromGroup, PromRule, rule_of
from runwatch_server.rules.pack import FiledRule, split_file
from runwatch_server.rules.queries import RuleRecord

BUILTIN = "builtin"
EVERYWHERE = "everywhere"
_INTERVAL_S = 1.0
"""Interval in seconds at which silence is judged; everything else is judged as it arrives."""


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule and the place where it is defined."""

    rule: Rule
    file: str
    project: str
    """The project that it holds for; empty: every project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A reader's filters; None does not filter."""

    names: Collection[str] | None = None
    groups: Collection[str] | None = None
    files: Collection[str] | None = None
    states: Collection[str] | None = None

    def takes_group(self, group: PromGroup) -> bool:
        return _takes(self.groups, group.name) and _takes(self.files, group.file)

    def takes_rule(self, rule: PromRule) -> bool:
        return _takes(self.names, rule.name) and _takes(self.states, rule.state)


def placed_rules(builtin: Iterable[FiledRule], records: Sequence[RuleRecord]) -> list[PlacedRule]:
    """The rules in force that are not on trial. A person's rule for all projects replaces a
    built-in rule with its name, or removes it if disabled."""
    replaced = {record.name for record in records if not record.project}
    shipped = [*IN_CODE, *(filed.rule for filed in builtin)]
    placed = [PlacedRule(rule, BUILTIN, "") for rule in shipped if rule.name not in replaced]
    for record in records:
        file = f"project:{record.project}" if record.project else EVERYWHERE
        if record.enabled:
            for filed in split_file(msgspec.json.decode(record.document)):
                placed.append(PlacedRule(filed.rule, file, record.project))
    return [one for one in placed if not one.rule.shadow]


def groups_of(
    placed: Sequence[PlacedRule],
    alerts: Mapping[tuple[str, str], Sequence[PromAlert]],
    *,
    is_judged: bool,
    now: float,
) -> list[PromGroup]:
    """`alerts` are by project and rule. A project's own rule gets that project's alerts, and a rule
    for all projects gets those of all projects without a rule of this name."""
    own = {(one.project, one.rule.name) for one in placed if one.project}
    common: defaultdict[str, list[PromAlert]] = defaultdict(list)
    for (project, name), found in alerts.items():
        if (project, name) not in own:
            common[name] += found
    groups: defaultdict[tuple[str, str], list[PromRule]] = defaultdict(list)
    for one in placed:
        name = one.rule.name
        theirs = alerts.get((one.project, name), ()) if one.project else common[name]
        rule = rule_of(one.rule, list(theirs), is_judged=is_judged, now=now)
        groups[one.file, one.rule.group or one.file].append(rule)
    return [_group(file, name, rules) for (file, name), rules in sorted(groups.items())]


def narrowed(groups: Iterable[PromGroup], wanted: Wanted) -> list[PromGroup]:
    """The parts of the groups that match the filters; empty groups are left out."""
    kept = [
        msgspec.structs.replace(group, rules=[one for one in group.rules if wanted.takes_rule(one)])
        for group in groups
        if wanted.takes_group(group)
    ]
    return [group for group in kept if group.rules]


def _group(file: str, name: str, rules: list[PromRule]) -> PromGroup:
    return PromGroup(
        name=name,
        file=file,
        rules=rules,
        interval=_INTERVAL_S,
        limit=0,
        evaluation_time=0.0,
        last_evaluation=rules[0].last_evaluation,
    )


def _takes(wanted: Collection[str] | None, found: str) -> bool:
    return wanted is None or found in wanted
