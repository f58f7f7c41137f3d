"""A training under somebody else's loop that breaks: its weights, and the bundle that it leaves."""

import os
from pathlib import Path
from typing import cast

import pytest
import torch
from tests.forking import fork
from tests.hooks.adapters.jobs import FRAMEWORKS
from tests.waiting import LONGEST_S
from torch import Tensor

from runwatch_hooks.bundles import open_bundle

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("broken_frameworks.py")


@pytest.mark.parametrize("program", ["hf_trainer", "lightning_module", "accelerate_loop"])
def test_the_batches_of_the_broken_step_are_kept_and_the_weights_stay_whole(
    tmp_path: Path, program: str
) -> None:
    output = tmp_path / "output.txt"
    done = fork(
        FRAMEWORKS[program],
        str(PROGRAM),
        [program, str(tmp_path)],
        output=output,
        environment=os.environ | {"OMP_NUM_THREADS": "1"},
        folder=tmp_path,
    )
    assert done.wait(LONGEST_S) == 0, output.read_text()[-4000:]
    (facts,) = (tmp_path / "bundles").rglob("bundle.json")
    bundle = open_bundle(facts.parent)
    batches = cast("list[dict[str, Tensor]]", bundle.batches)

    assert bundle.step == 2
    assert bundle.facts.batch_note == ""
    assert [batch["number"].tolist() for batch in batches] == [[8, 9], [10, 11]]
    assert [bool(batch["x"].isnan().any()) for batch in batches] == [True, False]
    assert is_finite(tmp_path / "weights.pt")  # the guard let the step change nothing


def is_finite(weights: Path) -> bool:
    held: dict[str, Tensor] = torch.load(weights, weights_only=True)
    return bool(held) and all(bool(one.isfinite().all()) for one in held.values())
