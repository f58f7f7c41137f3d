"""Two real processes under DDP: a guarded step is guarded on both."""

import math
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.ranks.launched import seen_by_ranks

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("guarded_rank.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the ranks saw."""
    return seen_by_ranks(PROGRAM, tmp_path_factory.mktemp("guard"))


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
