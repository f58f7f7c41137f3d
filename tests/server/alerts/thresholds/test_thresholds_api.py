"""Levels of rules over a stored run."""

from dataclasses import replace

import numpy as np
import pytest
from tests.server.harness import LAYOUT, Api, frame

from runwatch.layouts import Layer, Layout

pytestmark = pytest.mark.anyio

RULES = """
version: 1
groups:
- name: mine
  rules:
  - {alert: TooHigh, when: loss > 9, severity: critical}
  - {alert: Doubled, when: "loss > 2 * median(loss, 4)", min_history: 1}
  - {alert: AboveStart, when: "loss > 10 * first(loss, 1)"}
  - {alert: LayerTooHigh, scope: layer, when: grad_norm > 7}
  - {alert: LayerDoubled, scope: layer, when: "grad_norm > 2 * max(grad_norm, 2)", min_history: 1}
  - {alert: LayerLeads, scope: layer, when: grad_norm > 3 * median_layers(grad_norm)}
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


async def test_a_loss_under_another_name_has_the_levels_of_the_loss(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0, 1.0, 2.0, 2.0, 2.0, 2.0], metric="train/loss"))

    found = await levels(api, run_id, metric="train/loss", **{"from": 4, "to": 5})

    assert (found["TooHigh"], found["Doubled"]) == ([9.0, 9.0], [3.0, 4.0])


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


async def test_a_level_that_remembers_the_beginning_is_that_of_the_beginning(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [3.0] + [1.0] * 49))

    found = await levels(api, run_id, metric="loss", **{"from": 40, "to": 41})

    assert found["AboveStart"] == [30.0, 30.0]


async def test_a_level_is_that_of_the_objective_that_is_trained(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    losses, objective = [1.0] * 20 + [50.0] * 4, [1.0] * 20 + [2.0] * 4
    both = np.column_stack([losses, objective])
    sent = replace(frame(1, losses), metric_names=("loss", "objective"), metrics=both)
    await api.post(run_id, sent)

    found = await levels(api, run_id, metric="loss", **{"from": 21, "to": 23})

    assert found["Doubled"] == [100.0, 100.0, 100.0]


async def test_a_layer_has_the_levels_of_the_rules_of_single_layers(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    norms = np.array([[1, 10], [2, 10], [1, 40], [1, 10]], np.float32)
    await api.post(run_id, frame(1, [1.0] * 4, stats=norms))

    asked = {"stat": "grad_norm", "from": 2, "to": 3}
    first = await levels(api, run_id, layer="first.weight", **asked)
    last = await levels(api, run_id, layer="last.weight", **asked)

    assert first["LayerTooHigh"] == [7.0, 7.0]
    assert first["LayerDoubled"] == [4.0, 4.0]
    assert last["LayerDoubled"] == [20.0, 80.0]
    assert last["LayerLeads"] == first["LayerLeads"] == [61.5, 16.5]
    assert "TooHigh" not in first


async def test_a_layer_that_the_run_has_no_more_or_never_had_has_levels_too(api: Api) -> None:
    await api.json("POST", "/rules", content=RULES, headers={"Content-Type": "application/yaml"})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0] * 2, stats=np.array([[1, 10], [2, 10]], np.float32)))
    later = Layout((Layer("last.weight"), Layer("new.weight")), LAYOUT.stats)
    await api.put_layout(run_id, later)
    stats = np.array([[30, 1], [30, 1]], np.float32)
    after = frame(2, [1.0] * 2, first_step=2, stats=stats)
    await api.post(run_id, replace(after, layout_hash=later.hash))

    asked = {"stat": "grad_norm", "from": 0, "to": 1}
    former = await levels(api, run_id, layer="first.weight", **asked)
    unknown = await levels(api, run_id, layer="no such layer", **asked)

    assert former["LayerDoubled"] == [2.0]
    assert unknown == {"LayerTooHigh": [7.0, 7.0]}


async def test_a_series_is_a_metric_or_a_layers_stat(api: Api) -> None:
    run_id = await api.new_run()

    params = {"layer": "first.weight", "from": 0, "to": 1}
    refused = await api.call("GET", f"/runs/{run_id}/thresholds", params=params)

    assert refused.status_code == 422
    assert "layer= and stat=" in refused.json()["detail"]
