"""Two real processes under DDP that never trained together: the first comparison says so."""

from pathlib import Path
from typing import Any

import pytest
from tests.hooks.ranks import unreduced_rank
from tests.hooks.ranks.launched import seen_by_ranks

pytestmark = pytest.mark.heavy

Results = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each of the ranks saw."""
    return seen_by_ranks(Path(unreduced_rank.__file__), tmp_path_factory.mktemp("unreduced"))


@pytest.mark.parametrize("way", ["past_the_wrapper", "converted"])
def test_the_model_in_a_wrapper_drifts_from_the_first_comparison_on(
    results: Results, way: str
) -> None:
    first, second = (result[way] for result in results)

    assert set(first["drift"]) == {0.0}
    assert set(second["drift"]) == {1.0}
    assert first["events"] == []
    assert {event["metric"] for event in second["events"]} == {"replica_drift"}
    assert {event["why"] for event in second["events"]} == {"not_reduced"}
    assert "0.weight" in second["events"][0]["layers"]


def test_one_that_is_called_as_it_should_be_does_not(results: Results) -> None:
    for result in results:
        assert set(result["as_it_should_be"]["drift"]) == {0.0}
        assert result["as_it_should_be"]["events"] == []


def test_the_hook_had_no_fault(results: Results) -> None:
    assert {one["num_faults"] for result in results for one in result.values()} == {0}
