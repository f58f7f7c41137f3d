"""`/metrics`: what it says of runs, and that nobody can make it grow without bound."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.server.harness import LAYOUT, Api, frame, new_id, serve

from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import ABSENT_32
from runwatch.vocabulary import RunId, RunState
from runwatch_server.alerts.collector import MAX_RULES, bounded
from runwatch_server.monitoring.run_figures import (
    MAX_RUNS,
    WORST_LAYERS,
    Fleet,
    RunFacts,
    worst_layers,
)
from runwatch_server.monitoring.service_metrics import ServiceMetrics

pytestmark = pytest.mark.anyio


async def scrape(api: Api) -> list[Sample]:
    reply = await api.http.get("/metrics", headers={"Authorization": f"Bearer {api.admin_key}"})
    assert reply.status_code == 200, reply.text
    return [
        sample for family in text_string_to_metric_families(reply.text) for sample in family.samples
    ]


def values(samples: list[Sample], name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for sample in samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


async def test_a_run_shows_its_newest_values_and_names(api: Api) -> None:
    run_id = await api.new_run(project="pretrain")
    await api.post(run_id, frame(1, [2.0, 1.5]))

    samples = await scrape(api)

    assert values(samples, "runwatch_run_loss", run_id=run_id) == [1.5]
    assert values(samples, "runwatch_run_last_step", run_id=run_id) == [1.0]
    assert values(samples, "runwatch_run_info", run="test", project="pretrain") == [1.0]
    states = [
        one.labels["state"] for one in samples if one.name == "runwatch_run_state" if one.value
    ]
    assert states in (["starting"], ["training"])  # by whether the service has looked at it yet
    assert values(samples, "runwatch_runs", state=states[0]) == [1.0]


async def test_a_loss_that_is_no_number_is_shown_as_none(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0, math.nan]))

    assert all(map(math.isnan, values(await scrape(api), "runwatch_run_loss", run_id=run_id)))


async def test_the_worst_layers_are_shown_and_those_that_are_no_numbers_counted(api: Api) -> None:
    run_id = await api.new_run()
    stats = np.array([[math.nan, 3.0]], np.float32)
    await api.post(run_id, frame(1, [2.0], stats=stats))

    samples = await scrape(api)

    assert values(samples, "runwatch_run_layer_grad_norm", layer="last.weight") == [3.0]
    assert values(samples, "runwatch_run_nonfinite_layers", run_id=run_id) == [1.0]


async def test_layers_whose_long_names_begin_alike_are_two_series(api: Api) -> None:
    layout = Layout((Layer("x" * 200 + "a", (2,)), Layer("x" * 200 + "b", (2,))), ("grad_norm",))
    run_id = await api.new_run()
    await api.put_layout(run_id, layout)
    stats = np.array([[3.0, 2.0]], np.float32)
    await api.post(run_id, replace(frame(1, [2.0]), layout_hash=layout.hash, stats=stats))

    samples = await scrape(api)

    shown = [one for one in samples if one.name == "runwatch_run_layer_grad_norm"]
    assert len({one.labels["layer"] for one in shown}) == 2


async def test_a_layer_whose_norm_leaves_elements_out_is_counted_and_shown_first(api: Api) -> None:
    layout = Layout((Layer("a", (2,)), Layer("b", (2,))), ("grad_norm", "nonfinite"))
    run_id = await api.new_run()
    await api.json("PUT", f"/runs/{run_id}/layouts/{layout.hash}", json=layout.to_document())
    stats = np.array([[3.0, 0.0, 0.0, 2.0]], np.float32)
    await api.post(run_id, replace(frame(1, [2.0]), layout_hash=layout.hash, stats=stats))

    samples = await scrape(api)

    assert values(samples, "runwatch_run_nonfinite_layers", run_id=run_id) == [1.0]
    assert math.isnan(values(samples, "runwatch_run_layer_grad_norm", layer="b")[0])


async def test_alerts_of_which_nobody_hears_are_not_counted_as_the_runs(api: Api) -> None:
    rule = {"scope": "run", "when": "loss > 50", "severity": "critical"}
    rules = [{**rule, "alert": "Loud"}, {**rule, "alert": "OnTrial", "shadow": True}]
    await api.json("POST", "/rules", json={"version": 1, "groups": [{"name": "t", "rules": rules}]})
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [99.0]))
    await api.until_judged(run_id)

    counted = values(await scrape(api), "runwatch_run_alerts", run_id=run_id, severity="critical")
    assert sum(counted) == 1


async def test_a_run_that_was_removed_is_shown_no_more(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0]))
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.call("DELETE", f"/runs/{run_id}")

    assert values(await scrape(api), "runwatch_run_loss") == []


async def test_paths_that_nobody_knows_make_one_series(api: Api) -> None:
    for number in range(20):
        await api.call("GET", f"/nothing/{number}")

    assert values(
        await scrape(api), "runwatch_request_seconds_count", route="unmatched", status="4xx"
    ) == [20.0]


async def test_a_route_is_one_series_whatever_run_it_is_asked_for(api: Api) -> None:
    for _ in range(3):
        await api.call("GET", f"/runs/{new_id()}")

    (count,) = values(
        await scrape(api),
        "runwatch_request_seconds_count",
        route="/api/v1/runs/{run_id}",
        status="4xx",
    )
    assert count == 3.0


async def test_hostile_names_stay_inside_their_label(tmp_path: Path) -> None:
    hostile = '"} 1\nforged{a="\\'
    async with serve(tmp_path) as api:
        run_id = new_id()
        await api.json("POST", "/runs", json={"run_id": run_id, "name": hostile})
        await api.new_attempt(run_id)
        await api.post(run_id, frame(1, [2.0], metric=hostile))
        samples = await scrape(api)

    assert [s.labels["run"] for s in samples if s.name == "runwatch_run_info"] == [hostile]
    assert "forged" not in {sample.name for sample in samples}


def test_however_many_runs_and_layers_come_the_series_stay_few() -> None:
    health = ServiceMetrics()
    layout = Layout(tuple(Layer(f"{n}" * 40) for n in range(100)), ("grad_norm",))
    run_ids = [new_id() for _ in range(3 * MAX_RUNS)]
    for run_id in run_ids:
        stats = np.ones((1, 100), np.float32)
        sent = frame(1, [1.0], metric=f"metric of {run_id}", stats=stats)
        health.runs.note(run_id, sent, layout, at=1.0, late=False)
    health.runs.refresh(everything(run_ids), now=2.0)

    series = Counter(sample.name for family in health.runs.collect() for sample in family.samples)

    assert series["runwatch_run_last_step"] == MAX_RUNS
    assert series["runwatch_run_layer_grad_norm"] == MAX_RUNS * WORST_LAYERS
    assert sum(series.values()) < 20 * MAX_RUNS
    assert not [name for name in series if "metric of" in name]


def everything(run_ids: list[RunId]) -> Fleet:
    facts = RunFacts("n" * 256, "p" * 256, RunState.TRAINING, 0)
    return Fleet(
        num_by_state={RunState.TRAINING: len(run_ids)},
        facts=dict.fromkeys(run_ids, facts),
        alerts={(run_id, "firing", "warning"): 1 for run_id in run_ids},
    )


def test_a_run_that_ended_is_let_go_after_an_hour() -> None:
    health = ServiceMetrics()
    run_id = new_id()
    health.runs.note(run_id, frame(1, [1.0]), LAYOUT, at=0.0, late=False)
    ended = Fleet(
        num_by_state={}, facts={run_id: RunFacts("a", "b", RunState.FINISHED, 0)}, alerts={}
    )

    health.runs.refresh(ended, now=3599.0)
    assert run_id in health.runs.run_ids
    health.runs.refresh(ended, now=3601.0)
    assert run_id not in health.runs.run_ids


def test_rules_without_number_are_counted_together() -> None:
    counts = {(f"rule {number}", "firing"): 1 for number in range(MAX_RULES + 5)}

    shown = bounded(counts)

    assert len(shown) == MAX_RULES + 1
    assert shown["other", "firing"] == 5


def test_the_worst_layers_are_no_numbers_first_and_never_what_was_not_recorded() -> None:
    norms = np.array([1.0, math.inf, 5.0, ABSENT_32, math.nan], np.float32)

    assert worst_layers(norms) == [1, 4, 2, 0]


def test_layers_of_nearly_the_same_norm_keep_their_places() -> None:
    norms = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], np.float32)
    shown = worst_layers(norms)
    norms[:2] = 2.3

    assert sorted(worst_layers(norms, shown)) == [2, 3, 4, 5, 6]


def test_a_layer_of_twice_the_norm_takes_the_place_of_one_that_was_shown() -> None:
    norms = np.array([3.0, math.nan, 1.3, 1.4, 1.5, 1.6, 1.7], np.float32)

    assert worst_layers(norms, [2, 3, 4, 5, 6]) == [1, 6, 5, 0, 4]


def test_a_run_keeps_its_series_of_layers_from_one_scrape_to_the_next() -> None:
    health = ServiceMetrics()
    layout = Layout(tuple(Layer(f"{n}") for n in range(100)), ("grad_norm",))
    run_id = new_id()
    shown: set[str] = set()
    for seq in range(1, 51):
        noise = np.random.default_rng(seq).uniform(1.0, 1.9, (1, 100)).astype(np.float32)
        health.runs.note(run_id, frame(seq, [1.0], stats=noise), layout, at=0.0, late=False)
        shown |= layers_shown(health)

    assert len(shown) == WORST_LAYERS


def layers_shown(health: ServiceMetrics) -> set[str]:
    return {
        sample.labels["layer"]
        for family in health.runs.collect()
        for sample in family.samples
        if sample.name == "runwatch_run_layer_grad_norm"
    }
