"""Two stages of a pipeline: one run, and every command at one step of both."""

from pathlib import Path
from typing import Final

import pytest
from tests.hooks.ranks import pipeline_rank
from tests.hooks.ranks.launched import run_ranks, seen_by_ranks
from tests.hooks.ranks.ordered import Did, check_deeds, check_replay
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving

pytestmark = pytest.mark.heavy

STEPS: Final = 6


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Did]:
    return seen_by_ranks(Path(pipeline_rank.__file__), tmp_path_factory.mktemp("ordered"))


def test_all_stages_do_each_command_at_one_step(ranks: list[Did]) -> None:
    check_deeds(ranks)


def test_after_a_rollback_the_same_steps_are_trained_to_the_bit(ranks: list[Did]) -> None:
    for rank in ranks:
        check_replay(rank)


def test_the_example_s_layers_bear_the_names_that_they_have_in_the_whole(tmp_path: Path) -> None:
    with serving(StubService()) as told:
        run_ranks(
            pipeline_rank.EXAMPLE,
            f"--steps={STEPS}",
            folder=tmp_path,
            RUNWATCH_URL=told.url,
            RUNWATCH_TOKEN=TOKEN,
        )
    (run,), (layout,) = told.runs.values(), told.layouts.values()

    assert run.name == "pipeline"
    assert layout.layer_names == tuple(
        f"blocks.{block}.{name}" for block in (0, 1) for name in ("weight", "bias")
    )
