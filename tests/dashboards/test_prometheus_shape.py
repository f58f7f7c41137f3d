"""Our alerts and rules have every key of a real Prometheus' answer to the same question."""

from typing import Any

import pytest
from tests.dashboards.stack import Stack, on_this_machine

from runwatch.vocabulary import RunId

pytestmark = [pytest.mark.heavy, on_this_machine]


def ours(stack: Stack, path: str) -> Any:
    return stack.ask("GET", f"/{path}", base="/prometheus/api/v1")


def firing_rule(answer: Any) -> Any:
    """A group, and in it a rule with an alert."""
    for group in answer["data"]["groups"]:
        for rule in group["rules"]:
            if rule.get("alerts"):
                return group, rule, rule["alerts"][0]
    return None


def test_the_answers_have_the_same_keys(stack: Stack, broken_run: RunId) -> None:
    stack.until(
        lambda: firing_rule(stack.get("prometheus", "/api/v1/rules")) is not None, "an alert"
    )
    stack.until(lambda: firing_rule(ours(stack, "rules")) is not None, "an alert of ours")
    theirs, mine = stack.get("prometheus", "/api/v1/rules"), ours(stack, "rules")
    alerts = stack.get("prometheus", "/api/v1/alerts"), ours(stack, "alerts")

    assert set(mine) == set(theirs)
    for one, other in zip(firing_rule(mine), firing_rule(theirs), strict=True):
        assert set(one) == set(other)
    assert set(alerts[1]["data"]["alerts"][0]) == set(alerts[0]["data"]["alerts"][0])
