"""Alerts and rules as Prometheus tells of its own; a real one shows the shape."""

import math
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from tests.server.harness import Api, HandClock, Storage, frame, serve

from runwatch_server.prometheus.shapes import go_float

pytestmark = pytest.mark.anyio

MINE: Final = {
    "version": 1,
    "groups": [
        {
            "name": "mine",
            "rules": [
                {"alert": "TooHigh", "when": "loss > 5", "for": {"seconds": 3600}},
                {"alert": "OnTrial", "when": "loss > 5", "shadow": True},
            ],
        }
    ],
}


@pytest.fixture
async def told(storage: Storage, hand_clock: HandClock) -> AsyncIterator[Api]:
    """A run whose loss is no number, and one that is pending by a rule of its project's own."""
    async with serve(storage, clock=hand_clock) as api:
        await api.json("POST", "/rules", params={"project": "own"}, json=MINE)
        broken, high = await api.new_run(project="other"), await api.new_run(project="own")
        await api.post(broken, frame(1, [1.0, math.nan]))
        await api.post(high, frame(1, [9.0] * 3))
        await api.until_judged(broken, high)
        yield api


async def ask(api: Api, path: str, *, key: str = "", **params: object) -> Any:
    reply = await api.http.get(
        f"/prometheus/api/v1/{path}",
        params={name: str(value) for name, value in params.items()},
        headers={"Authorization": f"Bearer {key or api.admin_key}"},
    )
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    assert answer["status"] == "success"
    return answer["data"]


async def test_an_alert_has_the_keys_of_prometheus_and_the_labels_of_alertmanager(
    told: Api,
) -> None:
    alerts = (await ask(told, "alerts"))["alerts"]
    firing = next(one for one in alerts if one["labels"]["alertname"] == "NonFinite")

    assert set(firing) == {"labels", "annotations", "state", "activeAt", "value"}
    assert (firing["state"], firing["labels"]["project"]) == ("firing", "other")
    assert firing["labels"]["watchdog"] == told.services.receivers.name
    assert firing["annotations"]["onset_step"] == "1"


async def test_a_rule_that_waits_is_pending_with_its_seconds(told: Api) -> None:
    (group,) = (await ask(told, "rules", **{"rule_name[]": "TooHigh"}))["groups"]
    (rule,) = group["rules"]

    assert (group["name"], group["file"]) == ("mine", "project:own")
    assert (rule["state"], rule["duration"], rule["query"]) == ("pending", 3600.0, "loss > 5")
    assert [alert["value"] for alert in rule["alerts"]] == ["9e+00"]


async def test_a_rule_on_trial_is_none_of_them(told: Api) -> None:
    assert (await ask(told, "rules", **{"rule_name[]": "OnTrial"}))["groups"] == []


async def test_rules_are_narrowed_as_prometheus_narrows_them(told: Api) -> None:
    every = names(await ask(told, "rules"))

    assert names(await ask(told, "rules", type="alert")) == every
    assert names(await ask(told, "rules", type="record")) == set()
    assert names(await ask(told, "rules", **{"rule_group[]": "mine"})) == {"TooHigh"}
    assert names(await ask(told, "rules", **{"file[]": "builtin"})) == every - {"TooHigh"}
    assert names(await ask(told, "rules", state="pending")) == {"TooHigh"}
    bare = (await ask(told, "rules", exclude_alerts="true"))["groups"]
    assert not any(rule["alerts"] for group in bare for rule in group["rules"])


async def test_a_key_of_a_project_sees_its_own_alerts_and_rules(told: Api) -> None:
    theirs = await told.new_key("read", project="other")
    rules = await ask(told, "rules", key=theirs)

    assert {
        one["labels"]["project"] for one in (await ask(told, "alerts", key=theirs))["alerts"]
    } == {"other"}
    assert "TooHigh" not in names(rules)


async def test_without_a_key_nothing_is_said(told: Api) -> None:
    assert (await told.http.get("/prometheus/api/v1/alerts")).status_code == 401


def names(data: Any) -> set[str]:
    return {rule["name"] for group in data["groups"] for rule in group["rules"]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1e+00"),
        (812.4, "8.124e+02"),
        (-0.5, "-5e-01"),
        ("NaN", "NaN"),
        ("-Inf", "-Inf"),
        (None, "NaN"),
    ],
)
def test_a_value_is_written_as_go_writes_it(value: float | str | None, text: str) -> None:
    assert go_float(value) == text
