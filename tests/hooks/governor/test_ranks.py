"""Two real processes under DDP: the first reads less, and what ranks compare does not miss it."""

from pathlib import Path
from typing import Any

import pytest
from tests.hooks.ranks.launched import seen_by_ranks

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("thinned_rank.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the ranks saw."""
    return seen_by_ranks(PROGRAM, tmp_path_factory.mktemp("thinned"))


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
