"""Two real processes under DDP: the first reads less, and what ranks compare does not miss it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("thinned_rank.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the ranks saw."""
    folder = tmp_path_factory.mktemp("thinned")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = subprocess.run(
        [sys.executable, *launcher, str(PROGRAM), str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_the_first_rank_alone_reads_layers_and_so_less_of_them(
    results: list[dict[str, Any]],
) -> None:
    first, second = results

    assert first["intervals"][-1] == 64.0
    assert first["num_read"] < first["num_steps"]
    assert "sampling" in first["kinds"]
    assert second["intervals"] == []
    assert second["num_read"] == 0


def test_losses_and_the_comparison_of_replicas_are_told_of_every_rank(
    results: list[dict[str, Any]],
) -> None:
    for result in results:
        assert len(result["losses"]) == result["num_steps"]
        assert set(result["drift"]) == {0.0}
        assert result["num_faults"] == 0
    assert results[0]["weights"] == results[1]["weights"]


def test_sharded_parameters_are_refused_with_the_reason(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert "max_overhead: SGD steps sharded parameters" in result["refusal"]
