"""The example for Alertmanager inhibits what the built-in rules do, and nothing else."""

from collections import defaultdict
from pathlib import Path
from typing import TypedDict, cast

import yaml

from runwatch.rules import IN_CODE
from runwatch_server.rules.pack import load_builtin

EXAMPLE = Path(__file__).parents[3] / "dashboards" / "alertmanager.yml"


class InhibitRule(TypedDict):
    source_matchers: list[str]
    target_matchers: list[str]
    equal: list[str]


def test_its_inhibition_is_that_of_the_built_in_rules() -> None:
    document = cast(dict[str, list[InhibitRule]], yaml.safe_load(EXAMPLE.read_text()))
    rules = {rule["source_matchers"][0]: rule for rule in document["inhibit_rules"]}
    explained: dict[str, list[str]] = defaultdict(list)
    for rule in (*IN_CODE, *(filed.rule for filed in load_builtin())):
        for one in rule.inhibited_by:
            for source in one.rules:
                explained[source].append(rule.name)

    assert rules.pop('alertname="RunLost"')["equal"] == ["run_id"]
    prometheus = rules.pop('alertname="RunFailed"')
    assert prometheus["target_matchers"] == ['alertname="RunwatchRunFailed"']
    assert {source: rule["target_matchers"] for source, rule in rules.items()} == {
        f'alertname="{source}"': ['alertname=~"' + "|".join(targets) + '"']
        for source, targets in explained.items()
    }


def test_the_heartbeat_is_sent_each_minute() -> None:
    """Alertmanager leaves a repetition out that is due a moment after it looks."""
    document = yaml.safe_load(EXAMPLE.read_text())
    (switch,) = (
        route for route in document["route"]["routes"] if route["receiver"] == "dead-mans-switch"
    )

    assert (switch["group_interval"], switch["repeat_interval"]) == ("1m", "50s")
