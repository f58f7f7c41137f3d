"""Four real processes: what is measured of shards is what the full tensors say."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.ranks.launched import run_ranks

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("modes.py")
MODES = ("ddp", "fsdp", "fsdp_offload", "hsdp", "tensor_parallel", "two_dimensions")
SHARDED = MODES[1:]

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of one job that trains in every mode in turn."""
    written = tmp_path_factory.mktemp("modes") / "results.json"
    run_ranks(PROGRAM, str(written), num_ranks=4)
    found: Results = json.loads(written.read_text())
    return found


def rows(results: Results, mode: str, rank: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = results[mode]["rows"][rank]
    return found


def stat(layers: dict[str, dict[str, float]], name: str) -> dict[str, float]:
    return {layer: facts[name] for layer, facts in layers.items() if name in facts}


@pytest.mark.parametrize("name", ["grad_norm", "grad_absmax", "nonfinite", "zero_frac"])
@pytest.mark.parametrize("mode", MODES)
def test_every_step_s_gradients_are_those_of_the_full_tensors(
    results: Results, mode: str, name: str
) -> None:
    measured = [stat(row["layers"], name) for row in rows(results, mode)]
    expected = [stat(step, name) for step in results[mode]["expected"]]

    assert measured == [pytest.approx(step, rel=2e-7, nan_ok=True) for step in expected]


@pytest.mark.parametrize("name", ["param_norm", "update_ratio"])
@pytest.mark.parametrize("mode", MODES)
def test_the_first_step_s_parameters_are_those_of_the_full_tensors(
    results: Results, mode: str, name: str
) -> None:
    measured = stat(rows(results, mode)[0]["layers"], name)

    assert measured == pytest.approx(stat(results[mode]["expected"][0], name), rel=1e-5)


@pytest.mark.parametrize("mode", SHARDED)
def test_the_run_s_norm_is_over_all_shards_and_each_replica_once(
    results: Results, mode: str
) -> None:
    norms = [math.hypot(*stat(step, "grad_norm").values()) for step in results[mode]["expected"]]

    measured = [row["metrics"]["grad_norm"] for row in rows(results, mode)]

    assert measured == pytest.approx(norms, rel=2e-7)


@pytest.mark.parametrize("mode", MODES)
def test_other_ranks_send_their_loss_and_pace_and_no_layer(results: Results, mode: str) -> None:
    last = rows(results, mode, rank=3)[-1]

    assert last["layers"] == {}
    assert last["metrics"].keys() <= {
        "loss",
        "step_time",
        "local_grad_norm",
        "local_nonfinite",
        "replica_drift",
        "host_mem",
        "host_mem_share",
        "own_time",
        "rank_lag",
        "loss_gap",
    }
    assert {"loss", "step_time"} <= last["metrics"].keys()


def test_one_bad_element_in_another_rank_s_shard_is_counted_in_its_layer(
    results: Results,
) -> None:
    last = rows(results, "broken")[-1]
    counts = stat(last["layers"], "nonfinite")

    assert {layer: count for layer, count in counts.items() if count} == {"second.weight": 1.0}
    assert math.isnan(last["metrics"]["grad_norm"])


def test_nothing_was_told_to_be_missing(results: Results) -> None:
    told = [event for mode in MODES for event in results[mode]["events"] if "what" in event]

    assert told == []
