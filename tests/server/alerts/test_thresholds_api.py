"""Levels of rules over a stored run."""

import pytest
from tests.server.harness import Api, frame

pytestmark = pytest.mark.anyio

RULES = """
version: 1
groups:
- name: mine
  rules:
  - {alert: TooHigh, when: loss > 9, severity: critical}
  - {alert: Doubled, when: "loss > 2 * median(loss, 4)", min_history: 1}
"""


async def levels(api: Api, run_id: str, **params: object) -> dict[str, list[float]]:
    found = await api.json("GET", f"/runs/{run_id}/thresholds", params=params)
    return {one["rule"]: one["levels"] for one in found["thresholds"]}


async def test_levels_are_told_for_the_steps_asked_for(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]))

    found = await levels(api, run_id, metric="loss", **{"from": 4, "to": 5})

    assert found["TooHigh"] == [9.0, 9.0]
    assert found["Doubled"] == [3.0, 4.0]


async def test_over_many_steps_only_constant_levels_are_told(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    params = {"metric": "loss", "from": 0, "to": 100_000}
    found = await api.json("GET", f"/runs/{run_id}/thresholds", params=params)

    told = {one["rule"]: one["steps"] for one in found["thresholds"]}
    assert told["TooHigh"] == [0, 100_000]
    assert "Doubled" not in told
    assert found["num_left_out"] >= 1


async def test_a_metric_that_no_rule_knows_has_no_level(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0], metric="mine"))

    assert await levels(api, run_id, metric="mine", **{"from": 0, "to": 9}) == {}
