"""Two real processes under DDP: a guarded step is guarded on both."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("guarded_rank.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the ranks saw."""
    folder = tmp_path_factory.mktemp("guard")
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


@pytest.mark.parametrize("kind", ["plain", "fused", "outlier, plain", "outlier, fused"])
def test_all_ranks_keep_out_what_one_ranks_data_broke(
    results: list[dict[str, Any]], kind: str
) -> None:
    first, second = (result[kind] for result in results)

    assert first["weights"] == second["weights"]
    assert first["guarded_steps"] == second["guarded_steps"] == [0.0, 0.0, 1.0, 0.0]
    assert first["weights"][1] == first["weights"][2] != first["weights"][3]
    assert all(math.isfinite(weight) for weight in first["weights"][3])


@pytest.mark.parametrize("kind", ["outlier, plain", "outlier, fused"])
def test_what_is_far_outside_its_past_counts_as_that_on_all(
    results: list[dict[str, Any]], kind: str
) -> None:
    counts = [result[kind]["guarded_outliers"] for result in results]

    assert counts == [[0.0, 0.0, 1.0, 0.0]] * 2


def test_sharded_parameters_are_refused_with_the_reason(results: list[dict[str, Any]]) -> None:
    assert "AdamW steps sharded parameters" in results[0]["sharded"]
